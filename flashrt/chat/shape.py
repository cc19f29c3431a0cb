"""What an answer must look like, if the client said so."""

from typing import Any

import attrs


@attrs.frozen
class CallShape:
    """The answer is a call of one of these functions, or several calls if `parallel`."""

    functions: tuple[dict[str, Any], ...]
    parallel: bool = True


@attrs.frozen
class JsonShape:
    """The visible text is one JSON value of this schema; `field` is where the client gave it.

    With `calls` the model may call instead.
    """

    schema: dict[str, Any] | bool
    field: str
    calls: CallShape | None = None


@attrs.frozen
class OneCall:
    """Free, but over after the first call."""


AnswerShape = JsonShape | CallShape | OneCall
