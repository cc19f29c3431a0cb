"""Where a conversation leaves the one before it: which message, which byte, what kind of change."""

from collections.abc import Sequence
from enum import Enum

import attrs

from flashrt.chat.outline import Outline, Part, PartKind
from flashrt.chat.prompt import Prompt, Segment, Wording
from flashrt.chat.visible import Visible, answer_key

RESULT = "<tool_response>"
"""The control token in front of each result where several are one turn."""


class BreakKind(Enum):
    """What was changed."""

    SYSTEM_TEXT = "system_text"
    TOOLS = "tools"
    MESSAGE = "message"
    ANSWER_TEXT = "answer_text"
    REASONING = "reasoning"
    CALLS = "calls"
    SHORTER = "shorter"
    TEMPLATE = "template"


@attrs.frozen
class Break:
    """The first difference: `byte` counts UTF-8 bytes in the text of the client's `message`.

    For tools it counts in their JSON, for calls in names and arguments as JSON; keys sorted.
    """

    message: int
    byte: int
    kind: BreakKind


@attrs.frozen
class _Side:
    """One of the two conversations, its prompt up to the generation prompt."""

    prompt: Prompt | Wording
    outline: Outline
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, prompt: Prompt | Wording) -> "_Side | None":
        if prompt.outline is None:
            return None
        parts = (p for p in prompt.outline.parts if p.kind is not PartKind.GENERATION)
        return cls(prompt, prompt.outline, tuple(parts))

    def segments(self, at: int) -> Sequence[Segment]:
        start = self.parts[at - 1].stop_segment if at else 0
        return self.prompt.segments[start : self.parts[at].stop_segment]


def find_break(
    before: Prompt | Wording, answer: Visible | None, now: Prompt | Wording
) -> Break | None:
    """How `now` leaves a conversation: its last prompt, and what was answered to it, if anything.

    None: it goes on with it, or one of the two prompts has no outline.
    """
    old, new = _Side.of(before), _Side.of(now)
    if old is None or new is None:
        return None
    head = _head_break(old, new)
    if head is not None:
        return head
    if answer is not None:
        old = attrs.evolve(old, parts=(*_without_open(old.parts), _answered(old.outline, answer)))
    for at in range(min(len(old.parts), len(new.parts))):
        found = _part_break(old, new, at)
        if found is not None:
            return found
    if len(new.parts) < len(old.parts) and not _is_rest(old, len(new.parts)):
        return Break(old.parts[len(new.parts)].first_message, 0, BreakKind.SHORTER)
    return None


def _without_open(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The answer went on inside the last part: it is in `answer` only from there on."""
    return parts if not parts or parts[-1].closed else parts[:-1]


def _answered(outline: Outline, answer: Visible) -> Part:
    """The part that the answer makes, with the client's own half of it where it has one."""
    message, last = outline.messages, outline.parts[-1]
    if not last.closed:
        message = last.first_message
        answer = attrs.evolve(
            answer,
            content=last.content + answer.content,
            reasoning=last.reasoning + answer.reasoning,
        )
    content, calls = answer.parts()
    return Part(
        PartKind.ANSWER,
        0,
        0,
        answer_key(content, calls),
        answer.reasoning.strip(),
        first_message=message,
        content=content,
        calls=calls,
    )


def _is_rest(old: _Side, at: int) -> bool:
    """Whether what is missing is no message but only what ends the turn before it."""
    rest = old.parts[at:]
    return rest[0].kind is PartKind.BETWEEN and rest[0].first_message >= old.outline.messages


def _head_break(old: _Side, new: _Side) -> Break | None:
    """What stands behind the whole conversation."""
    was, now = old.outline.head, new.outline.head
    if was.args != now.args:
        return Break(0, 0, BreakKind.TEMPLATE)
    if was.tools != now.tools:
        return Break(0, _first_difference(was.tools, now.tools), BreakKind.TOOLS)
    if was.system != now.system:
        shown = (text.removeprefix("system:") for text in (was.system, now.system))
        return Break(0, _first_difference(*shown), BreakKind.SYSTEM_TEXT)
    return None


def _part_break(old: _Side, new: _Side, at: int) -> Break | None:
    was, now = old.parts[at], new.parts[at]
    if was.kind is PartKind.ANSWER and now.kind is PartKind.ANSWER:
        return _answer_break(was, now)
    if was.key == now.key:
        return None
    if was.kind is PartKind.BETWEEN and now.kind is PartKind.BETWEEN:
        return _between_break(old, new, at)
    if PartKind.SYSTEM in (was.kind, now.kind):
        return Break(0, _texts_differ(old.segments(at), new.segments(at)), BreakKind.SYSTEM_TEXT)
    return Break(now.first_message, 0, BreakKind.MESSAGE)


def _answer_break(was: Part, now: Part) -> Break | None:
    at = now.first_message
    if was.content != now.content:
        if not was.closed and now.content.startswith(was.content):
            return None
        byte = _first_difference(was.content, now.content)
        if not now.closed and was.content.startswith(now.content):
            return Break(at, byte, BreakKind.SHORTER)
        return Break(at, byte, BreakKind.ANSWER_TEXT)
    if was.calls != now.calls:
        return Break(at, _first_difference(was.calls, now.calls), BreakKind.CALLS)
    if now.reasoning and was.reasoning != now.reasoning:
        return Break(at, _first_difference(was.reasoning, now.reasoning), BreakKind.REASONING)
    return None


# -- what users and tools say ------------------------------------------------------------------


def _between_break(old: _Side, new: _Side, at: int) -> Break | None:
    """Message by message; one that stands only in `new` goes on with an unanswered one."""
    was, now = (_messages(side.segments(at)) for side in (old, new))
    first = new.parts[at].first_message
    for number, (a, b) in enumerate(zip(was, now, strict=False)):
        if a != b:
            return Break(first + number, _first_difference(a, b), BreakKind.MESSAGE)
    if len(was) == len(now):
        return Break(first, _texts_differ(old.segments(at), new.segments(at)), BreakKind.MESSAGE)
    common = min(len(was), len(now))
    is_last = at == len(old.parts) - 1
    if len(now) > len(was) and is_last:
        return None
    is_end = at == len(new.parts) - 1
    kind = BreakKind.SHORTER if len(now) < len(was) and is_end else BreakKind.MESSAGE
    return Break(first + common, 0, kind)


def _messages(segments: Sequence[Segment]) -> list[str]:
    """The texts of the messages, without the lines that name who speaks.

    Each stands between the token that opens its turn, or a result in it, and the next token.
    """
    opener = next((segment.text for segment in segments if segment.is_control), "")
    texts: list[str] = []
    results, is_inside = 0, False
    for segment in segments:
        if not segment.is_control:
            if is_inside:
                texts[-1] += segment.text
            continue
        is_inside = segment.text in (opener, RESULT)
        results = results + 1 if segment.text == RESULT else 0 if is_inside else results
        if is_inside and results == 1:
            texts[-1:] = [""]
        elif is_inside:
            texts.append("")
    return [_without_role(text) for text in texts]


def _without_role(text: str) -> str:
    return text.partition("\n")[2] if "\n" in text else text


# ----------------------------------------------------------------------------------------------


def _texts_differ(was: Sequence[Segment], now: Sequence[Segment]) -> int:
    return _first_difference(*("".join(segment.text for segment in side) for side in (was, now)))


def _first_difference(was: str, now: str) -> int:
    """In UTF-8 bytes; where one is the beginning of the other, its length."""
    a, b = (text.encode(errors="surrogatepass") for text in (was, now))
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
