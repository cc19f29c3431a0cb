"""Where the turns of a session ended: the boundaries to which it can go back."""

from collections.abc import Sequence

import attrs

from flashrt.chat.session_call import Mark
from flashrt.errors import Conflict

END_BYTES = 250
"""Of Python's objects: an end with its numbers, and its place in a list."""

SHOWN_ENDS = 20
"""Boundaries that a refusal lists."""


@attrs.frozen
class TurnEnd:
    """A committed boundary: `length` ids are processed, and at most one is pending.

    `turn`: the session's count there. `start`: where that turn began. `messages`: how many had been
    exchanged, if the client sent messages. `answered`: an answer ended here; else a saved state
    that a session was made from stands here.
    """

    length: int
    pending: int | None = None
    turn: int = 0
    start: int = 0
    messages: int | None = 0
    answered: bool = True


NOTHING = TurnEnd(0, answered=False)
"""Before the first turn: every session can go back to it."""


def stands_at(ends: Sequence[TurnEnd], length: int) -> TurnEnd:
    """The newest end at or below `length`."""
    return next((end for end in reversed(ends) if end.length <= length), NOTHING)


def marked(ends: Sequence[TurnEnd], mark: Mark, name: str) -> TurnEnd:
    """The boundary that `mark` means in the session `name`, whose `ends` these are, oldest first.

    Raises Conflict, with what there is, where it means none.
    """
    known = [NOTHING, *ends]
    if mark.turns is not None:
        if mark.turns < len(known):
            return known[-1 - mark.turns]
        raise Conflict(
            f"The session {name} has {len(ends)} turns to go back over, and not {mark.turns}.",
            param="turns",
        )
    field = "tokens" if mark.tokens is not None else "messages"
    wanted = mark.tokens if mark.tokens is not None else mark.messages
    for end in reversed(known):
        if (end.length if field == "tokens" else end.messages) == wanted:
            return end
    newest = [end.length if field == "tokens" else end.messages for end in known][-SHOWN_ENDS:]
    raise Conflict(
        f"The session {name} has no boundary at {wanted} {field}; its newest are at "
        f"{', '.join(str(number) for number in newest if number is not None)}.",
        param=field,
    )
