"""How a template opens and closes an assistant's turn, found out at load by rendering probes."""

from collections.abc import Sequence
from itertools import takewhile

import attrs

from flashrt.chat.marked import Piece
from flashrt.chat.probes import AGAIN, ANSWER, SYSTEM, USER, Show
from flashrt.chat.prompt import CONTROL, Segment
from flashrt.chat.request import Json
from flashrt.errors import BadRequest

OTHER = "Zulu tell"


@attrs.frozen
class AnswerTurn:
    """The control token and the text behind it that open an assistant's turn; the token that ends.

    Text can spell neither: a control token is one only where the template wrote it.
    """

    opening: str
    role: str
    closing: str

    def opens(self, segments: Sequence[Segment], at: int) -> bool:
        """Whether an assistant's turn begins with segment `at`."""
        if segments[at].key != CONTROL + self.opening:
            return False
        return not self.role or (
            at + 1 < len(segments) and segments[at + 1].text.startswith(self.role)
        )


def find_answer_turn(show: Show) -> AnswerTurn | None:
    """None where the template's turns cannot be told by control tokens."""
    talk = [_say("user", USER), _say("assistant", ANSWER), _say("user", AGAIN)]
    other = [talk[0], _say("assistant", OTHER), talk[2]]
    answered = _after(_shown(show, talk), USER)
    asked = _after(_shown(show, [talk[0], talk[2]]), USER) or _after(answered, ANSWER)
    opening = _opening(
        asked, answered, [_after(_shown(show, it), USER) for it in (other, talk[:1])]
    )
    closing = _closing(_after(answered, ANSWER))
    if opening is None or closing is None or closing == opening[0]:
        return None
    return AnswerTurn(*opening, closing)


def strips_content(show: Show) -> bool:
    """Whether the template leaves out the blanks around an assistant's text."""
    return _is_stripped(show, [_say("user", USER), _say("assistant", ANSWER), _say("user", AGAIN)])


def strips_system(show: Show) -> bool:
    """Whether the template leaves out the blanks around the first system text."""
    return _is_stripped(show, [_say("system", SYSTEM), _say("user", USER)])


# ----------------------------------------------------------------------------------------------


def _is_stripped(show: Show, talk: Sequence[Json]) -> bool:
    """For the first message that no user says."""
    blank = [
        m if m["role"] == "user" else {**m, "content": f" \n\t{m['content']}\t\n "} for m in talk
    ]
    plain = _shown(show, talk)
    return bool(plain) and plain == _shown(show, blank)


def _opening(
    asked: Sequence[Piece], answered: Sequence[Piece], others: Sequence[Sequence[Piece]]
) -> tuple[str, str] | None:
    """What an assistant's turn has at its start in all prompts, and a user's turn has not."""
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(asked, answered, strict=False))))
    if min(len(asked), len(answered), *map(len, others)) <= same:
        return None
    here = answered[same]
    if here.is_control:
        return (here.text, "") if all(it[same] == here for it in others) else None
    texts = (here.text, *(it[same].text for it in others))
    role = "".join(letters[0] for letters in takewhile(_all_equal, zip(*texts, strict=False)))
    if not same or not answered[same - 1].is_control or asked[same].is_control:
        return None
    if not role.strip() or asked[same].text.startswith(role):
        return None
    return answered[same - 1].text, role


def _all_equal(letters: Sequence[str]) -> bool:
    return len(set(letters)) == 1


def _closing(after: Sequence[Piece]) -> str | None:
    """The control token behind the assistant's text; another one opens the user's turn."""
    between = list(takewhile(lambda piece: AGAIN not in piece.text, after))
    if sum(piece.is_control for piece in between) < 2 or not between[0].is_control:
        return None
    return between[0].text


def _say(role: str, content: str) -> Json:
    return {"role": role, "content": content}


def _after(pieces: Sequence[Piece], words: str) -> list[Piece]:
    """The pieces behind the one that has `words`."""
    at = next((i for i, piece in enumerate(pieces) if words in piece.text), len(pieces))
    return list(pieces[at + 1 :])


def _shown(show: Show, messages: Sequence[Json]) -> list[Piece]:
    try:
        return show(messages, ())
    except BadRequest:
        return []
