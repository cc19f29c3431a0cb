"""A model that says what a script wants, behind the real server: for clients that need a plot.

    python -m tests.scripted --port 8000

The engine is the strict fake in everything but the choice of ids: reader, journal, policy and HTTP
are the real ones. Its plot, for an agent that offers a shell and a file reader: run `echo hi`, read
README.md, then say what was printed. Names of tools and parameters come from the prompt's schemas.
"""

import argparse
import json
import re
from collections.abc import Iterator

import trio

from flashrt.chat.tokenizer import Tokenizer
from flashrt.demo import DEMO_PATH
from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import Constraint, DecodeChunk, SamplingParams
from flashrt.serve import load_voice, serve
from flashrt.settings import load

SHELLS = (
    *("bash", "shell", "run_shell_command", "run_command", "run_commands"),
    *("execute", "terminal", "Bash", "exec_command", "shell_command"),
)
READERS = ("read", "read_file", "view", "cat", "Read")
ENDERS = ("complete", "final_answer")
"""Tools with which an agent of some clients says that it is done; it goes on until it calls one."""
COMMANDS = ("command", "cmd", "script", "commands")
PATHS = ("path", "filePath", "file_path", "absolute_path", "filepath", "filename", "file")

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The command with which mini-swe-agent ends."""


class ScriptedEngine(FakeEngine):
    """The fake engine with a script in place of its hash."""

    def __init__(self, tokenizer: Tokenizer, *, max_seq: int = 60_000, burst_max: int = 4) -> None:
        super().__init__(vocab_size=tokenizer.vocab_size, max_seq=max_seq, identity="scripted")
        self._tokenizer = tokenizer
        self._burst = burst_max

    def says(self, prompt: str) -> str:
        """The whole answer to a prompt, control tokens written out."""
        return plot(prompt)

    def _decode(
        self, params: SamplingParams, constraint: Constraint | None
    ) -> Iterator[DecodeChunk]:
        """The scripted answer to what was really processed, in bursts."""
        answer = list(self._tokenizer.encode(self.says(self._tokenizer.decode(self._processed))))
        while answer:
            burst, answer = answer[: self._burst], answer[self._burst :]
            if constraint is not None:
                burst, answer = burst[:1], burst[1:] + answer
                constraint((), burst)
            if self._pending is not None:
                self._processed.append(self._pending)
            self._processed += burst[:-1]
            self._pending = burst[-1]
            yield DecodeChunk(tuple(burst), drafted=len(burst) - 1)


def plot(prompt: str) -> str:
    """What the model says next, control tokens written out."""
    return spoken(prompt, _next_act(prompt))


def spoken(prompt: str, act: str) -> str:
    """An answer with a thought before it where the template has opened one, and with its end."""
    thinks = prompt.endswith("<think>\n")
    opening = "The user wants something done.\n</think>\n\n" if thinks else ""
    return opening + act + "<|im_end|>"


def _next_act(prompt: str) -> str:
    tools = tools_on_offer(prompt)
    acts = prompt.count("<tool_call>", last_task(prompt))
    shell, reader, ender = (pick(tools, names) for names in (SHELLS, READERS, ENDERS))
    if shell is None:
        done = "hi was printed. README.md describes a tiny repo used for a test."
        return done if ender is None else call_text(ender, ("answer",), done)
    if acts == 0:
        return call_text(shell, COMMANDS, "echo hi")
    if acts == 1:
        if reader is not None:
            return call_text(reader, PATHS, _absolute(prompt, reader, "README.md"))
        return call_text(shell, COMMANDS, "cat README.md")
    if reader is None and "COMPLETE_TASK" in prompt:
        return call_text(shell, COMMANDS, SUBMIT)
    done = "It printed: hi. README.md says: A tiny repo used for a test."
    return done if ender is None else call_text(ender, ("answer",), done)


def last_task(prompt: str) -> int:
    """Where the last thing that a person asked begins; tool results are user turns too."""
    turns = [m.start() for m in re.finditer(r"<\|im_start\|>user\n(?!<tool_response>)", prompt)]
    return turns[-1] if turns else 0


def tools_on_offer(prompt: str) -> dict[str, dict]:
    """The functions on offer, by name, as the template lists them."""
    listed = re.search(r"<tools>\n(.*?)\n</tools>", prompt, re.DOTALL)
    functions = {}
    for line in re.findall("^{.*", listed[1], re.MULTILINE) if listed else ():
        tool = json.loads(line)
        function = tool.get("function", tool)
        functions[function["name"]] = function
    return functions


def pick(tools: dict[str, dict], names: tuple[str, ...]) -> dict | None:
    """The first of these functions that is on offer."""
    return next((tools[name] for name in names if name in tools), None)


def _absolute(prompt: str, reader: dict, name: str) -> str:
    """A full path where the tool wants one; agents name their working folder in the prompt."""
    described = json.dumps(reader)
    told = prompt.rpartition("</tools>")[2]  # the tools' own words are about any directory
    folder = re.search(r"(?:[Ww]orking directory|cwd|directory)\W+(/[\w./-]+)", told)
    return f"{folder[1].rstrip('.')}/{name}" if folder and "absolute" in described else name


def call_text(function: dict, names: tuple[str, ...], value: str) -> str:
    """One call in the wire format; required parameters that are not known get a plain word."""
    properties = (function.get("parameters") or {}).get("properties") or {}
    required = (function.get("parameters") or {}).get("required") or []
    main = next((name for name in names if name in properties), names[0])
    if properties.get(main, {}).get("type") == "array":
        value = json.dumps([value])
    values = {name: _filler(properties.get(name, {})) for name in required} | {main: value}
    lines = [f"<parameter={name}>\n{text}\n</parameter>" for name, text in values.items()]
    inner = "\n".join([f"<function={function['name']}>", *lines, "</function>"])
    return f"<tool_call>\n{inner}\n</tool_call>"


def _filler(schema: dict) -> str:
    plain = {"boolean": "false", "integer": "1", "number": "1"}.get(schema.get("type"), "a test")
    return str(schema.get("enum", [plain])[0])


def main() -> None:
    """Serve the plot until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", default="8000")
    asked = parser.parse_args()
    voice = load_voice(DEMO_PATH)
    trio.run(serve, load({"port": asked.port}, {}), voice, ScriptedEngine(voice.tokenizer))


if __name__ == "__main__":
    main()
