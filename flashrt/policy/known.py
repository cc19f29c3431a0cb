"""Which conversations this server has had a turn of: those that a soft drain goes on serving."""

from collections import OrderedDict
from collections.abc import Iterator

from flashrt.chat.outline import digest
from flashrt.chat.prompt import Prompt

OPENING_IDS = 64
"""By how many of its ids a prompt without an outline is known; a shorter one by all that it has."""


class KnownConversations:
    """Conversations by what a router can see of them, least recently seen first out.

    A router pins a conversation by the session that its client names, else by its opening. So here
    either is enough; the token lists, which decide about reuse, are not looked at. It is a question
    of placement only: whoever is known in error is served as ever, only not elsewhere.
    """

    def __init__(self, conversations_max: int) -> None:
        self._marks_max = 2 * conversations_max
        self._marks: OrderedDict[str, None] = OrderedDict()

    def see(self, namespace: str, prompt: Prompt, session: str | None) -> None:
        """A turn of this conversation is served here. `session`: its client's name for it."""
        for mark in _marks(namespace, prompt, session):
            self._marks[mark] = None
            self._marks.move_to_end(mark)
        while len(self._marks) > self._marks_max:
            self._marks.popitem(last=False)

    def has(self, namespace: str, prompt: Prompt, session: str | None) -> bool:
        """Whether this goes on a conversation that was seen."""
        return any(mark in self._marks for mark in _marks(namespace, prompt, session))


def _marks(namespace: str, prompt: Prompt, session: str | None) -> Iterator[str]:
    """At most two names; those of one namespace are none of another's (G10)."""
    if session is not None:
        # The helpers of a session are pinned with it: "session/helper".
        yield digest("session", namespace, session.partition("/")[0])
    yield digest("opening", namespace, *_opening(prompt))


def _opening(prompt: Prompt) -> Iterator[str]:
    """The system turn and what the user began with: what no later turn of a client changes."""
    if prompt.outline is None:
        yield prompt.packed[: 4 * OPENING_IDS].hex()
        return
    for part in prompt.outline.parts:
        yield part.key
        if part.asks:
            return
