"""What a template does, found out once at load by rendering probes through it."""

import re
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile

import attrs

from flashrt.chat.marked import Piece
from flashrt.chat.prompt import Segment
from flashrt.chat.request import Json
from flashrt.errors import BadRequest, CannotServe

Show = Callable[[Sequence[Json], Sequence[Json]], list[Piece]]
"""Renders messages and tools to pieces; raises BadRequest."""

Encode = Callable[[Sequence[Piece]], list[Segment]]

SYSTEM, USER, ANSWER, AGAIN, LATE = (
    "Alpha rule",
    "Bravo ask",
    "Charlie say",
    "Delta ask",
    "Echo rule",
)

TOOL: Json = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}


@attrs.frozen
class TurnMarks:
    """The ids that a prompt with a system turn starts with, and those that end a turn.

    None where the template has no such thing.
    """

    system_open: tuple[int, ...] | None = None
    turn_end: tuple[int, ...] | None = None


def find_turn_marks(show: Show, encode: Encode) -> TurnMarks:
    """Both sequences, as far as several probes agree on them."""
    ending = _turn_end(show)
    turn_end = _ids(encode(ending)) if ending else None
    return TurnMarks(_system_open(show, encode, turn_end), turn_end)


def takes_late_system(show: Show) -> bool:
    """Whether a system message behind other messages is rendered where it stands."""
    late = [
        _say("user", USER),
        _say("assistant", ANSWER),
        _say("system", LATE),
        _say("user", AGAIN),
    ]
    try:
        text = "".join(piece.text for piece in show([_say("system", SYSTEM), *late], ()))
    except BadRequest:
        return False
    places = [text.find(words) for words in (SYSTEM, USER, ANSWER, LATE, AGAIN)]
    return -1 not in places and places == sorted(places)


def require_whole_control(show: Show, control: Collection[str]) -> None:
    """Every control token that the template writes must be one literal in its source.

    Only those can be told from text that merely spells one. Raises CannotServe otherwise.
    """
    pattern = re.compile("|".join(map(re.escape, control)) or "(?!)")
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": "x", "n": 1}}}
    talk = [
        _say("system", SYSTEM),
        _say("user", USER),
        {**_say("assistant", ANSWER), "reasoning_content": "Hm", "tool_calls": [call]},
        _say("tool", "Seen"),
        _say("assistant", ANSWER),
        _say("user", AGAIN),
    ]
    for probe in (talk[1:2], talk[:2], talk):
        for tools in ((), (TOOL,)):
            for piece in _shown_or_nothing(show, probe, tools):
                spelled = None if piece.is_control else pattern.search(piece.text)
                if spelled:
                    raise CannotServe(
                        f"The chat template assembles the control token {spelled[0]!r} from parts, "
                        "so it cannot be told from text that a client wrote. Write it as one "
                        "literal in the template."
                    )


# ----------------------------------------------------------------------------------------------


def _say(role: str, content: str) -> Json:
    return {"role": role, "content": content}


def _shown_or_nothing(
    show: Show, messages: Sequence[Json], tools: Sequence[Json] = ()
) -> list[Piece]:
    try:
        return show(messages, tools)
    except BadRequest:
        return []


def _turn_end(show: Show) -> list[Piece]:
    """What stands between the text of one turn and the control token that opens the next."""
    talk = [_say("user", USER), _say("assistant", ANSWER), _say("user", AGAIN)]
    after_user = _between(_shown_or_nothing(show, talk), ANSWER, AGAIN)
    after_system = _between(
        _shown_or_nothing(show, [_say("system", SYSTEM), *talk[:1]]), SYSTEM, USER
    )
    return after_user if after_user == after_system else []


def _between(pieces: Sequence[Piece], before: str, after: str) -> list[Piece]:
    """From the first control token behind `before` to the last one ahead of `after`, without it."""
    start = next((i for i, piece in enumerate(pieces) if before in piece.text), None)
    end = next((i for i, piece in enumerate(pieces) if after in piece.text), None)
    if start is None or end is None:
        return []
    inside = list(pieces[start + 1 : end])
    while inside and not inside[-1].is_control:
        inside.pop()
    return inside[:-1]


def _system_open(
    show: Show, encode: Encode, turn_end: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """What all prompts with a system turn have in front, whatever the system text or the tools."""
    if not turn_end:
        return None
    words = (SYSTEM, "# zulu", "1. 東京", "(x)")
    probes = [
        _shown_or_nothing(show, [_say("system", text), _say("user", USER)], tools)
        for text in words
        for tools in ((), (TOOL,))
    ]
    if not all(probes):
        return None
    opening = _common_start([_ids(encode(pieces)) for pieces in probes])
    bare = _shown_or_nothing(show, [_say("user", USER)])
    if _starts_with_users_turn(bare, encode, opening, turn_end):
        return None
    return opening or None


def _starts_with_users_turn(
    bare: Sequence[Piece], encode: Encode, opening: tuple[int, ...], turn_end: tuple[int, ...]
) -> bool:
    """Whether a prompt without a system turn would pass for one that has it."""
    ids = _ids(encode(bare))
    if ids[: len(opening)] != opening:
        return False
    before_user = _ids(encode(list(takewhile(lambda piece: USER not in piece.text, bare))))
    return not any(before_user[i : i + len(turn_end)] == turn_end for i in range(len(before_user)))


def _common_start(sequences: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    same = takewhile(lambda ids: len(set(ids)) == 1, zip(*sequences, strict=False))
    return tuple(ids[0] for ids in same)


def _ids(segments: Sequence[Segment]) -> tuple[int, ...]:
    return tuple(token_id for segment in segments for token_id in segment.ids)
