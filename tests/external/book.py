"""A model that prints a long book, one chapter a command, for clients that must compact on the way.

It has no memory but the prompt. Asked without tools it writes the summary; afterwards it finds in
the prompt, if the client has put the summary there, how far it was.
"""

import re
from enum import Enum

import attrs

from flashrt.chat.tokenizer import Tokenizer
from tests.scripted import (
    COMMANDS,
    SHELLS,
    ScriptedEngine,
    call_text,
    last_task,
    pick,
    spoken,
    tools_on_offer,
)

TASK = "Print all chapters of the book, one command each, until the last."
SUMMARY = "Printed so far: up to chapter-"
FINISHED = "Every chapter is printed."
LINES = 360
"""Of a chapter: about 7,000 tokens of the demo's vocabulary."""


class Kind(Enum):
    """What a client wants from a request."""

    WORK = "the next command"
    SUMMARY = "a summary of the work"
    OTHER = "a title, or whatever else needs no tools"


@attrs.frozen
class Turn:
    """One served request."""

    kind: Kind
    prompt: str
    prompt_tokens: int
    said: str


class BookEngine(ScriptedEngine):
    """Prints `chapters` chapters; `turns` are all that it was asked, in order."""

    def __init__(self, tokenizer: Tokenizer, *, chapters: int, max_seq: int) -> None:
        super().__init__(tokenizer, max_seq=max_seq)
        self.turns: list[Turn] = []
        self._chapters = chapters

    def says(self, prompt: str) -> str:
        """The next command, the summary, or that it is done."""
        said = spoken(prompt, next_act(prompt, self._chapters))
        self.turns.append(Turn(kind_of(prompt), prompt, len(self._processed), said))
        return said


ASKED = re.compile("Respond with TEXT ONLY")
"""How Claude Code asks for a summary; it leaves the tools where they are."""


def kind_of(prompt: str) -> Kind:
    """By what is asked, by the tools on offer, and by what the conversation holds."""
    if ASKED.search(prompt, last_task(prompt)):
        return Kind.SUMMARY
    if pick(tools_on_offer(prompt), SHELLS) is not None:
        return Kind.WORK
    return Kind.SUMMARY if _named_in(prompt) else Kind.OTHER


def next_act(prompt: str, chapters: int) -> str:
    """What comes after the last chapter that the prompt knows of."""
    printed = max(_named_in(prompt), default=0)
    if ASKED.search(prompt, last_task(prompt)):
        return f"<analysis>It goes on.</analysis>\n<summary>{SUMMARY}{printed}.</summary>"
    tools = tools_on_offer(prompt)
    shell = pick(tools, SHELLS)
    if shell is None:
        return f"{SUMMARY}{printed}."
    if printed < chapters:
        return call_text(shell, COMMANDS, _print(printed + 1))
    if "complete" in tools:  # gptme goes on until the model calls it
        return call_text(tools["complete"], ("answer",), FINISHED)
    return FINISHED


def printed_in(prompt: str) -> set[int]:
    """The chapters that it has as the results of commands."""
    return {int(number) for number in re.findall(r"chapter-(\d+) line 1 ", prompt)}


def _named_in(prompt: str) -> set[int]:
    return {int(number) for number in re.findall(r"chapter-(\d+)", prompt)}


def _print(chapter: int) -> str:
    return f"seq -f 'chapter-{chapter} line %g of a long and quiet book about rivers' {LINES}"
