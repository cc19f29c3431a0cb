"""One errand for every client: run `echo hi`, read README.md, say what was printed.

The engine says what tests/scripted.py has for it, and remembers what it was asked.
"""

import json
from pathlib import Path
from typing import Any

import attrs

from flashrt.chat.tokenizer import Tokenizer
from tests.scripted import ScriptedEngine

WINDOW_TOKENS = 120_000
"""Wide enough that nobody compacts."""

DONE = "README.md says: A tiny repo used for a test."
CHATTED = "README.md describes a tiny repo used for a test."


class ErrandEngine(ScriptedEngine):
    """`prompts` are all that it was asked, in order."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, max_seq=WINDOW_TOKENS, burst_max=16)
        self.prompts: list[str] = []

    def says(self, prompt: str) -> str:
        """The next act of the errand."""
        self.prompts.append(prompt)
        return super().says(prompt)


@attrs.frozen
class Turn:
    """One line of the server's request log."""

    fields: dict[str, Any]

    @property
    def prompt_tokens(self) -> int:
        """The whole prompt."""
        return int(self.fields["prompt_tokens"])

    @property
    def new_tokens(self) -> int:
        """What of it was computed."""
        return int(self.fields["new_prefill_tokens"])

    @property
    def cached_tokens(self) -> int:
        """What of it was not."""
        return int(self.fields["cached_tokens"])

    @property
    def action(self) -> str:
        """How the prompt was taken up."""
        return str(self.fields["prefix_action"])

    @property
    def ending(self) -> str:
        """How the request ended."""
        return str(self.fields["terminal_state"])

    def __str__(self) -> str:
        names = ("terminal_state", "prefix_action", "prompt_tokens", "cached_tokens", "miss")
        return " ".join(f"{name}={self.fields[name]}" for name in names)


def turns_in(log: Path) -> list[Turn]:
    """The requests of a log, in the order in which they ended."""
    return [Turn(json.loads(line)) for line in log.read_text().splitlines()]
