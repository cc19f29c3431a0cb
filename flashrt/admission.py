"""Who is let in: the server's state, the limits, the line, and the records of those turned away."""

import time
import uuid
from collections.abc import Callable

from flashrt.errors import FlashRTError, Refused, Unavailable
from flashrt.fsm.lifecycle import LIFECYCLE, Life, LifeEvent
from flashrt.fsm.server import SERVER, ServerEvent, ServerState
from flashrt.fsm.table import Machine
from flashrt.items import Item
from flashrt.metrics.ledger import Ledger
from flashrt.metrics.record import RequestRecord
from flashrt.policy.limits import Limits, retry_after_s
from flashrt.worker import EngineWorker

READY_STATUSES = {ServerState.READY: 200, ServerState.SOFT_DRAINING: 404}
"""What `/health/ready` tells a router; 503 in every other state, and then nothing is served."""

NEW_REFUSED = (
    "This server is being drained and takes no new conversations; ask another one, or end the "
    "drain with `flashrt drain --undo`."
)


class Admission:
    """Decides on the trio loop, before anything is spent. Everybody refused gets a record."""

    def __init__(self, *, limits: Limits, worker: EngineWorker, ledger: Ledger) -> None:
        self.state = Machine(SERVER)
        self._limits = limits
        self._worker = worker
        self._ledger = ledger

    def current_state(self) -> ServerState:
        """Where the server stands now; a dead engine thread is found out here."""
        if not self._worker.alive and ServerEvent.FAULT in SERVER.legal(self.state.state):
            self.state.fire(ServerEvent.FAULT)
        return self.state.state

    def turn_away_unless_serving(self) -> None:
        """Before anything is spent on a request. It is one like others, with a record."""
        try:
            self.refuse_unless_serving()
        except Unavailable as refusal:
            self.end(new_record(), Machine(LIFECYCLE), LifeEvent.REJECT, refusal)
            raise

    def refuse_unless_serving(self) -> None:
        """Raise Unavailable unless requests are taken."""
        state = self.current_state()
        if state not in READY_STATUSES:
            raise Unavailable(f"The server is {state.name.lower()}.", retry_after_s=5)

    def refuse_new(self, is_known: Callable[[], bool]) -> None:
        """In a soft drain a conversation that is new here would have to leave again."""
        if self.current_state() is ServerState.SOFT_DRAINING and not is_known():
            raise Unavailable(NEW_REFUSED, retry_after_s=1)

    def admit(self, item: Item, is_known: Callable[[], bool], prompt_tokens: int = 0) -> None:
        """Queue the item. Raises Refused, with its record closed."""
        try:
            self.refuse_unless_serving()
            self.refuse_new(is_known)
            self._limits.admit(
                prompt_tokens,
                waiting=self._worker.depth(),
                waiting_of_client=self._worker.waiting_of(item.waiter),
                retry_after_s=self._retry_after_s(),
            )
            self._worker.submit(item)
        except Refused as refusal:
            self.end(item.record, item.life, LifeEvent.REJECT, refusal)
            raise

    def end(
        self,
        record: RequestRecord,
        life: Machine[Life, LifeEvent],
        event: LifeEvent,
        why: FlashRTError,
    ) -> None:
        """Close the record of a request that does not come to the queue."""
        record.terminal_state = life.fire(event)
        record.finished_at = time.perf_counter()
        record.fail(why)
        self._ledger.close(record)

    def _retry_after_s(self) -> int:
        """When a place in the queue is likely to be free. Session calls are no measure of it."""
        served_s = [
            record.finished_at - record.started_at
            for record in self._ledger.recent
            if record.started_at is not None
            and record.finished_at is not None
            and record.prefix_action is not None
        ]
        running = self._worker.running
        began = None if running is None else running.record.started_at
        return retry_after_s(served_s, 0.0 if began is None else time.perf_counter() - began)


def new_record(operation: str | None = None) -> RequestRecord:
    """The record of a request that comes in now; `operation`: which session call it is."""
    now = time.time()
    return RequestRecord(
        uuid.uuid4().hex,
        int(now),
        time.perf_counter(),
        enqueued_unix_s=now,
        operation=operation,
    )
