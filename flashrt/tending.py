"""What the engine thread does between two requests: memory is tidied, and what is new is filed.

At the end of the server it is the last that the thread does: what can be gone on with after a start
is brought to disk, as far as that goes in a given time.
"""

import logging
import time

import attrs

from flashrt.disk import DiskFault
from flashrt.policy.driving import Perform, driven
from flashrt.policy.remembered import noted, recall
from flashrt.policy.turn_loop import TurnLoop
from flashrt.shelf import DiskShelf

log = logging.getLogger("flashrt")

NOTE = "replay"
NOTE_LEAST_S, NOTE_BYTES_PER_S = 1.0, 4 << 20
"""Between two writings of the note on replay and sessions: a large one is written less often."""


@attrs.frozen
class _News:
    """What differs when there is something new to note."""

    replay_bytes: int
    sessions: int
    session_bytes: int
    newest_used_at: float


class Tending:
    """Care for the saved states of one server. Engine thread only, but for the constructor."""

    def __init__(
        self,
        turns: TurnLoop,
        shelf: DiskShelf | None = None,
        *,
        identity: str = "",
        headroom_bytes: int = 0,
        idle_ttl_s: float = 0.0,
    ) -> None:
        """Knows again what an earlier process has filed under this `identity`.

        `headroom_bytes`: of the engine's memory, kept free for what is saved next. `idle_ttl_s`:
        what was filed longer ago than that is deleted; 0: nothing is.
        """
        self._turns = turns
        self._shelf = shelf
        self._headroom_bytes = headroom_bytes
        self._noted_at, self._note_s = time.monotonic(), NOTE_LEAST_S
        if shelf is not None:
            self._find(shelf, identity, idle_ttl_s)
        self._noted = self._news()

    def between_requests(self) -> bool:
        """A little of what there is to do; whether anything is left."""
        store = self._turns.policy.store
        store.settle(self._headroom_bytes)
        left = store.write_behind()
        return left if self._shelf is None else self._noted_late(self._shelf) or left

    def park(self, perform: Perform, seconds: float) -> None:
        """The end: the live state is saved, and all that is worth it is on disk, in time."""
        for _ in driven(self._turns.parked(), [], perform):
            pass
        shelf = self._shelf
        if shelf is None:
            return
        end = time.monotonic() + seconds
        self._note(shelf)
        store = self._turns.policy.store
        while store.write_behind() and time.monotonic() < end:
            shelf.wait_for_one(min(0.1, end - time.monotonic()))
        if not shelf.flush(end - time.monotonic()):
            log.warning(
                "the server stops, and not all saved states are on disk after %g s", seconds
            )
        shelf.close()

    # -- inside ----------------------------------------

    def _find(self, shelf: DiskShelf, identity: str, idle_ttl_s: float) -> None:
        policy = self._turns.policy
        try:
            data = shelf.read_note(NOTE)
            if data is not None:
                recall(data, policy.memory, policy.sessions, time.time())
        except (DiskFault, ValueError) as fault:
            log.warning("what was remembered of earlier conversations is not used: %s", fault)
        try:
            before = time.time() - idle_ttl_s if idle_ttl_s else 0.0
            policy.store.adopt(shelf.filed(), identity, expired_before=before)
        except DiskFault as fault:
            log.warning("no saved states of earlier conversations: %s", fault)
        count = policy.store.counts["found"]
        if count:
            log.info("%d saved states of earlier conversations are on disk", count)

    def _noted_late(self, shelf: DiskShelf) -> bool:
        """Write the note, now and then; at once where a session is forgotten, which must not be in
        it any more. Whether it is still to be written."""
        news, now = self._news(), time.monotonic()
        if news == self._noted:
            return False
        if news.sessions >= self._noted.sessions and now < self._noted_at + self._note_s:
            return True
        self._note(shelf)
        return False

    def _note(self, shelf: DiskShelf) -> None:
        policy = self._turns.policy
        self._noted, self._noted_at = self._news(), time.monotonic()
        data = noted(policy.memory, policy.sessions, time.time())
        self._note_s = max(NOTE_LEAST_S, len(data) / NOTE_BYTES_PER_S)
        shelf.keep_note(NOTE, data)

    def _news(self) -> "_News":
        memory, sessions = self._turns.policy.memory, self._turns.policy.sessions
        newest = next((session.used_at for session in sessions.all_newest()), 0.0)
        return _News(memory.held_bytes, len(sessions), sessions.held_bytes, newest)
