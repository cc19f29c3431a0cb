"""The built-in tools: four harmless ones, so that a newcomer sees the whole loop.

Files are read below the current folder only, commands run only when the person says yes. Whatever
goes wrong is told to the model as a text, so that it can try something else.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from flashrt.client.answer import Call, Message
from flashrt.client.arithmetic import calculate
from flashrt.client.command import run_command

RESULT_CHARS_MAX = 8000
"""Longest result that goes back. Some 2,000 tokens: a small window survives a round of them."""

BYTES_MAX = 4 * RESULT_CHARS_MAX
"""What is read for that: a character has at most 4 bytes in UTF-8."""


@attrs.frozen
class Tool:
    """A tool, which takes one text. `asks`: it only runs when the person says yes to that text."""

    name: str
    parameter: str
    description: str
    run: Callable[[str], str]
    asks: bool = False

    def offer(self) -> dict[str, Any]:
        """As it is offered to the model."""
        schema = {
            "type": "object",
            "properties": {self.parameter: {"type": "string"}},
            "required": [self.parameter],
        }
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}


def _inside(path: str) -> Path:
    here, asked = Path.cwd().resolve(), Path(path).resolve()
    if not asked.is_relative_to(here):
        raise ValueError(f"{path} is not below the current folder {here}")
    return asked


def _read_file(path: str) -> str:
    file = _inside(path)
    if not file.is_file():  # a pipe or a device could be read for ever
        raise ValueError(f"{path} is no file")
    with file.open("rb") as opened:
        return opened.read(BYTES_MAX).decode(errors="replace")


def _list_files(folder: str) -> str:
    entries = sorted(_inside(folder).iterdir())
    return (
        "\n".join(entry.name + "/" * entry.is_dir() for entry in entries) or "the folder is empty"
    )


TOOLS = (
    Tool("read_file", "path", "Read a text file below the current folder.", _read_file),
    Tool("list_files", "folder", "List a folder, such as '.'; folders end in '/'.", _list_files),
    Tool(
        "run_command",
        "command",
        "Run a shell command in the current folder. The user is asked first.",
        lambda command: run_command(command, bytes_max=BYTES_MAX),
        asks=True,
    ),
    Tool(
        "calculate",
        "expression",
        "Compute numbers with + - * / // % ** and brackets.",
        lambda expression: str(calculate(expression)),
    ),
)


@attrs.frozen
class Toolbox:
    """Runs calls. `allow`: asks the person about a text, such as a command."""

    allow: Callable[[str], bool]
    tools: tuple[Tool, ...] = TOOLS

    def offers(self) -> list[dict[str, Any]]:
        """The tools, as a request has them."""
        return [tool.offer() for tool in self.tools]

    def run(self, call: Call) -> Message:
        """Run a call; the message that takes its result, or what went wrong, to the model."""
        try:
            result = self._result(call)
        except (ArithmeticError, OSError, ValueError) as error:
            result = f"error: {error}"
        return {"role": "tool", "tool_call_id": call.id, "content": bounded(result)}

    def _result(self, call: Call) -> str:
        by_name = {tool.name: tool for tool in self.tools}
        if call.name not in by_name:
            raise ValueError(f"there is no tool {call.name}; there are {', '.join(by_name)}")
        tool = by_name[call.name]
        text = _argument(tool, call.arguments)
        if tool.asks and not self.allow(text):
            return "the user did not allow this"
        return tool.run(text)


def _argument(tool: Tool, arguments: str) -> str:
    """The one text that a tool takes. Raises ValueError."""
    match json.loads(arguments):  # its JSONDecodeError is a ValueError
        case {tool.parameter: str(text)}:
            return text
    raise ValueError(f"{tool.name} takes one text, `{tool.parameter}`")


def bounded(text: str) -> str:
    """Text that fits, and that can be sent: names of files may have bytes that are no text."""
    text = text.encode(errors="replace").decode()
    if len(text) <= RESULT_CHARS_MAX:
        return text
    return f"{text[:RESULT_CHARS_MAX]}\n[cut: only the first {RESULT_CHARS_MAX} characters]"
