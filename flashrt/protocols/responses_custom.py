"""A custom tool's text, read out of the JSON arguments that the model's call grows by."""

import json
import re

from flashrt.protocols.responses_tools import INPUT

OPENING = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
CHARACTERS = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})+"
)
"""A piece of a JSON string that can be read without what follows."""


class InputText:
    """Reads `{"input": "..."}` piece by piece; arguments of another shape are the text whole."""

    def __init__(self) -> None:
        self._raw = ""
        self._began = False
        self._closed = False

    def feed(self, arguments: str) -> str:
        """Take more of the arguments; what more of the text is known by them."""
        if self._closed:
            return ""
        self._raw += arguments
        if not self._began:
            opening = OPENING.match(self._raw)
            if opening is None:
                return ""
            self._began = True
            self._raw = self._raw[opening.end() :]
        found = CHARACTERS.match(self._raw)
        end = found.end() if found else 0
        text = self._raw[:end]
        self._raw = self._raw[end:]
        self._closed = self._raw.startswith('"')
        return str(json.loads(f'"{text}"', strict=False))

    def rest(self) -> str:
        """The call is over: what has not been told yet."""
        if self._began:
            return ""
        try:
            value = json.loads(self._raw)[INPUT]
        except (ValueError, KeyError, TypeError, RecursionError):
            return self._raw
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
