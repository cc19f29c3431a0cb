"""Cuts a rendered prompt into the parts of its outline and gives each its key."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

import attrs

from flashrt.chat.outline import Head, Outline, Part, PartKind, digest
from flashrt.chat.probes import TOOL, TurnMarks
from flashrt.chat.prompt import CONTROL, Segment
from flashrt.chat.request import Json
from flashrt.chat.turns import AnswerTurn
from flashrt.chat.visible import NOT_JSON, answer_key, calls_text, sorted_json

History = Callable[[Json], str | None]
"""What a template makes of a fixed history with these arguments; None where it refuses."""

KNOWN_ARGS_MAX = 1_000
"""Sets of arguments whose effect is remembered; a few are ever used."""

ARGS_TEXT_MAX = 500
"""Characters of a set's JSON up to which it is found out which of the arguments count."""

CALL: Json = {"type": "function", "function": {"name": "look", "arguments": {"at": "x", "n": 1}}}
HISTORY: tuple[Json, ...] = (
    {"role": "system", "content": "Alpha rule"},
    {"role": "user", "content": "Bravo ask"},
    {"role": "assistant", "content": "", "reasoning_content": "Hm", "tool_calls": [CALL]},
    {"role": "tool", "content": "Seen"},
    {"role": "assistant", "content": "Charlie say", "reasoning_content": "Ah"},
    {"role": "user", "content": "Delta ask"},
    {"role": "assistant", "content": "Look", "reasoning_content": "So", "tool_calls": [CALL]},
    {"role": "tool", "content": "Found"},
)
"""Every kind of message, with thinking in front of the newest question and behind it."""
HISTORY_TOOLS = (TOOL,)


@attrs.frozen
class Talk:
    """A request on its way through the template, its messages normalised.

    `joined`: how many of the client's messages went into the first one besides it. `open_field`:
    where in the last message the answer goes on. `plain`: none of our marks is in any of it.
    """

    messages: list[Json]
    tools: Sequence[Json] = ()
    args: Json = attrs.field(factory=dict)
    joined: int = 0
    sent: int = 0
    open_field: str | None = None
    plain: bool = False


@attrs.frozen
class Known:
    """The parts with which an outline begins, of the first `messages`, and its head."""

    parts: tuple[Part, ...]
    messages: int
    head: Head


class Outliner:
    """Knows one template. Called from several threads at a time."""

    def __init__(
        self,
        turn: AnswerTurn,
        marks: TurnMarks,
        *,
        strips_content: bool,
        strips_system: bool,
        history: History,
        tells_time: bool = False,
    ) -> None:
        """`tells_time`: what stands in the system turn depends on more than the request."""
        self._turn = turn
        self._marks = marks
        self._strips_content = strips_content
        self._strips_system = strips_system
        self._history = history
        self._tells_time = tells_time
        self._args: dict[str, str] = {}

    def outline(
        self, segments: Sequence[Segment], talk: Talk, known: Known | None = None
    ) -> Outline | None:
        """None where what was rendered does not have the turns that the messages have.

        `known`: parts that this outline begins with; an answer comes next.
        """
        start = known.parts[-1].stop_segment if known is not None else 0
        first = known.messages if known is not None else 0
        answers = [
            i for i, m in enumerate(talk.messages[first:], first) if m["role"] == "assistant"
        ]
        key = CONTROL + self._turn.opening
        starts = [i for i in range(start, len(segments)) if segments[i].key == key]
        openings = [i for i in starts if self._turn.opens(segments, i)]
        ends = self._ends(segments, openings)
        if ends is None or len(openings) != len(answers) + (talk.open_field is None):
            return None
        try:
            head = self._head(talk) if known is None else known.head
            parts = tuple(self._parts(segments, talk, answers, openings, ends, head, known))
        except NOT_JSON:
            return None
        return Outline(parts if known is None else known.parts + parts, talk.sent, head)

    def _ends(self, segments: Sequence[Segment], openings: Sequence[int]) -> list[int] | None:
        """Behind which segment each of the assistant's turns ends; the last one is open."""
        ends = []
        key = CONTROL + self._turn.closing
        for start, limit in zip(openings, [*openings[1:], len(segments)], strict=True):
            closed = (i + 1 for i in range(start, limit) if segments[i].key == key)
            ends.append(next(closed, 0))
        if not ends or not all(ends[:-1]) or ends[-1]:
            return None
        return [*ends[:-1], len(segments)]

    def _parts(
        self,
        segments: Sequence[Segment],
        talk: Talk,
        answers: Sequence[int],
        openings: Sequence[int],
        ends: Sequence[int],
        head: Head,
        known: Known | None,
    ) -> Iterator[Part]:
        positions = _positions(segments, known)
        done = self._system_end(segments, openings[0]) if known is None else openings[0]
        message = 0
        if known is not None:
            message = known.messages
        elif done:
            keyed = [segment.key for segment in segments[:done]] if self._tells_time else ()
            key = digest("system", *attrs.astuple(head), *keyed)
            yield Part(PartKind.SYSTEM, positions[done], done, key, first_message=0)
            message = int(talk.messages[0]["role"] == "system")
        begins_with = () if done else attrs.astuple(head)
        for number, (opening, end) in enumerate(zip(openings, ends, strict=True)):
            if opening > done:
                keys = (segment.key for segment in segments[done:opening])
                key = digest("between", *begins_with, *keys)
                until = answers[number] if number < len(answers) else len(talk.messages)
                yield Part(
                    PartKind.BETWEEN,
                    positions[opening],
                    opening,
                    key,
                    first_message=self._clients(talk, message),
                    asks=any(m["role"] == "user" for m in talk.messages[message:until]),
                )
            begins_with = ()
            if number == len(answers):
                key = digest("generation", *(segment.key for segment in segments[opening:]))
                yield Part(PartKind.GENERATION, positions[end], end, key)
                return
            closed = end < len(segments) or talk.open_field is None
            closing = segments[end - 1].ids if closed else ()
            yield attrs.evolve(
                self._answer(talk.messages[answers[number]], closed),
                stop=positions[end],
                stop_segment=end,
                closed=closed,
                closing=closing,
                first_message=self._clients(talk, answers[number]),
            )
            done, message = end, answers[number] + 1

    def _answer(self, message: Json, closed: bool) -> Part:
        content, calls = message["content"], calls_text(message)
        if self._strips_content and closed:
            content = content.strip()
        reasoning = message.get("reasoning_content", "").strip()
        key = answer_key(content, calls)
        return Part(PartKind.ANSWER, 0, 0, key, reasoning, content=content, calls=calls)

    def _clients(self, talk: Talk, message: int) -> int:
        """The index that the client has for one of the normalised messages."""
        return message + talk.joined if message else 0

    def _system_end(self, segments: Sequence[Segment], limit: int) -> int:
        """Behind which segment the system turn ends; 0: there is none."""
        opening, turn_end = self._marks.system_open, self._marks.turn_end
        if not opening or not turn_end or not _starts(segments, opening):
            return 0
        for at in range(limit):
            stop = at
            ids: tuple[int, ...] = ()
            while segments[at].is_control and stop < limit and len(ids) < len(turn_end):
                ids += segments[stop].ids
                stop += 1
            if ids == turn_end:
                return stop
        return 0

    # -- what stands behind all of it -----------------------------------------------------------

    def _head(self, talk: Talk) -> Head:
        first = talk.messages[0]
        system = ""
        if first["role"] == "system":
            system = first["content"].strip() if self._strips_system else first["content"]
            system = f"system:{system}"
        tools = sorted_json(list(talk.tools)) if talk.tools else ""
        return Head(self._args_key(talk.args), tools, system)

    def _args_key(self, args: Json) -> str:
        """The arguments without those that change nothing but the generation prompt.

        Each costs a render the first time, so of a set too long to be meant all count.
        """
        if not args:
            return ""
        whole = sorted_json(args)
        if len(whole) > ARGS_TEXT_MAX:
            return whole
        known = self._args.get(whole)
        if known is None:
            known = self._without_idle(args)
            if len(self._args) < KNOWN_ARGS_MAX:
                self._args[whole] = known
        return known

    def _without_idle(self, args: Json) -> str:
        shown = self._history(args)
        counts = {
            name: value
            for name, value in args.items()
            if shown is None or shown != self._history({k: args[k] for k in args if k != name})
        }
        return sorted_json(counts) if counts else ""


def _positions(segments: Sequence[Segment], known: Known | None) -> Mapping[int, int]:
    """Where each segment begins, and the last one ends; only behind what is known."""
    start, position = 0, 0
    if known is not None:
        start, position = known.parts[-1].stop_segment, known.parts[-1].stop
    counts = (segment.token_count for segment in segments[start:])
    return dict(enumerate(accumulate(counts, initial=position), start))


def _starts(segments: Sequence[Segment], ids: tuple[int, ...]) -> bool:
    """Whether the prompt begins with `ids`."""
    found: tuple[int, ...] = ()
    for segment in segments:
        if len(found) >= len(ids):
            break
        found += segment.ids[: len(ids)]
    return found[: len(ids)] == ids


def until_generation(segments: Sequence[Segment], turn: AnswerTurn) -> str:
    """The keys of all in front of the last opening of an assistant's turn."""
    last = max((i for i in range(len(segments)) if turn.opens(segments, i)), default=len(segments))
    return digest(*(segment.key for segment in segments[:last]))
