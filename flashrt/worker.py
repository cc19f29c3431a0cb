"""The engine thread: one long call, one request at a time, events back to the trio loop.

Loop-visible state (lifecycles, sinks, records) changes on the loop only: at pick-up and in
`_deliver`. The thread sends events, and reads `CancelToken.cancelled`. At most one batch of events
is under way (`flashrt.outbox`); if the loop falls behind, the thread waits for it, so no queue
builds up between them.
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping

import attrs
import trio

from flashrt.errors import EngineFailed, FlashRTError, QueueFull, Unavailable
from flashrt.fsm.lifecycle import LifeEvent
from flashrt.items import Failed, Finished, Item, Output, SessionItem, WorkItem
from flashrt.metrics.activity import Activity, Held, Holdings
from flashrt.metrics.ledger import Ledger
from flashrt.outbox import Outbox
from flashrt.policy.driving import Batches
from flashrt.policy.measured import Measured
from flashrt.policy.session_calls import SessionCalls
from flashrt.policy.steps import Performer, Step, StepResult
from flashrt.policy.turn import (
    Answered,
    Ended,
    Pinned,
    Planned,
    Prefilled,
    Progressed,
    Saved,
    Told,
    TurnEvent,
)
from flashrt.policy.turn_loop import TurnLoop
from flashrt.tending import Tending

log = logging.getLogger("flashrt")

TIDY_EVERY_S = 10.0
"""Seconds at least between two calls of `tidy`."""

TEND_EVERY_S = 0.05
"""An idle engine looks so often after copies and files that are under way."""

GIVES_WAY_S = 0.005
"""The engine thread does no more for the next turns until the client has its end; so long at most.
Two threads that want the interpreter's lock hold each other up, and a client may not read."""

STOPPING_S = 5.0
"""What parking may take beyond its time: a step that is under way, a file that is being written."""


@attrs.frozen
class _Batch:
    """The events of one engine step, on their way to the loop. `at`: seconds, when it ended.

    `restore_ms`: what bringing capsules back took; `capsules`: what the store holds now.
    """

    item: Item
    events: tuple[TurnEvent, ...]
    at: float
    graph_captures: int
    restore_ms: float | None
    capsules: Mapping[str, object]
    held: Held


class EngineWorker:
    """Owns the engine. A serial loop, not a scheduler: oldest request first."""

    def __init__(
        self,
        performer: Performer,
        turns: TurnLoop,
        *,
        max_queue_depth: int,
        queue_timeout_s: float = 0.0,
        ledger: Ledger,
        tidy: Callable[[], object] = lambda: None,
        tending: Tending | None = None,
    ) -> None:
        """`queue_timeout_s`: a request that has waited so long is refused; 0: it may wait.

        `tidy` is called on the engine thread between two requests, now and then; `tending` cares
        for the saved states there.
        """
        self._performer = performer
        self._turns = turns
        self._calls = SessionCalls(turns)
        self._ledger = ledger
        self._send, self._receive = trio.open_memory_channel[Item](max_queue_depth)
        self._queued: dict[Item, float] = {}  # oldest first: since when, in trio's seconds
        self._queue_timeout_s = queue_timeout_s
        self._arrived = trio.Event()
        self._running: Item | None = None
        self._fault: BaseException | None = None
        self._measured = Measured(turns.policy.costs)
        self._tidy = tidy
        self._tidied_at = -math.inf
        self._tending = tending or Tending(turns)
        self._idle = trio.CancelScope()
        self._park_s: float | None = None
        self._parked = trio.Event()
        self.activity = Activity()
        self._holdings = Holdings(turns.policy)

    # -- on the trio loop ----------------------------------------

    def submit(self, item: Item) -> None:
        """Queue an admitted item; never blocks. Raises QueueFull, or Unavailable after a fault."""
        if self._fault is not None:
            raise Unavailable("The engine has stopped; this server must be restarted.")
        try:
            self._send.send_nowait(item)
        except trio.WouldBlock:
            self._drop_finished_items()
            try:
                self._send.send_nowait(item)
            except trio.WouldBlock:
                raise QueueFull(f"{self.depth()} requests are waiting; try again later.") from None
        item.life.fire(LifeEvent.ADMIT)
        self._queued[item] = trio.current_time()
        self._arrived.set()

    def depth(self) -> int:
        """How many requests wait."""
        return len(self._queued)

    def waiting(self) -> Iterator[Item]:
        """The requests that wait, oldest first."""
        return iter(self._queued)

    def waiting_of(self, waiter: str) -> int:
        """How many of them are this client's."""
        return sum(item.waiter == waiter for item in self._queued)

    @property
    def running(self) -> Item | None:
        """The request that the engine works on."""
        return self._running

    @property
    def alive(self) -> bool:
        """Whether the engine thread can serve requests."""
        return self._fault is None

    def leave(self, item: Item) -> None:
        """Nobody wants it any more: end a queued item now, a running one at its next boundary."""
        item.cancel.cancel()
        if item in self._queued:
            del self._queued[item]
            self._end(item, LifeEvent.CANCEL, Failed(item.cancel.reason))

    def cut_off(self, why: FlashRTError) -> None:
        """End what waits now, refused, and what runs at its next boundary."""
        for item in list(self._queued):
            del self._queued[item]
            self._end(item, LifeEvent.REJECT, Failed(why))
        if self._running is not None:
            self._running.cancel.cancel(why)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. A fault of the thread fails all items at once and is raised."""
        self._trio = trio.lowlevel.current_trio_token()
        task_status.started()
        try:
            await trio.to_thread.run_sync(
                self._thread, limiter=trio.CapacityLimiter(1), thread_name="flashrt-engine"
            )
        except trio.Cancelled:
            self._end_all(LifeEvent.CANCEL, Unavailable("The server is stopping."))
            raise
        except BaseException as fault:
            self._fault = fault
            self._end_all(LifeEvent.FAIL, EngineFailed("The engine has stopped."))
            raise

    async def park(self, seconds: float) -> None:
        """Have saved what can be gone on with after a start, and end the thread; in time."""
        self._park_s = seconds
        self._idle.cancel()
        if self._fault is None:
            with trio.move_on_after(seconds + STOPPING_S):
                await self._parked.wait()

    async def _next_item(self, wait_s: float, capsules: Mapping[str, object]) -> Item | None:
        """The oldest item still wanted; it leaves the queue on the loop, so without a race.

        None: for `wait_s` there was none, or the thread is to park. `capsules`: as in a batch.
        """
        self._ledger.capsules = capsules
        with trio.CancelScope(deadline=trio.current_time() + wait_s) as self._idle:
            if self._park_s is not None:
                self._idle.cancel()
            async for item in self._receive:
                if self._fault is None and item in self._queued:
                    del self._queued[item]
                    self._running = item
                    item.life.fire(LifeEvent.START)
                    item.record.started_at = time.perf_counter()
                    return item
            raise self._fault or RuntimeError("the queue is closed and nothing is wrong")
        return None

    async def expire(self) -> None:
        """Refuse what has waited for too long, until cancelled."""
        while self._queue_timeout_s:
            while not self._queued:
                self._arrived = trio.Event()
                await self._arrived.wait()
            item, since = next(iter(self._queued.items()))
            await trio.sleep_until(since + self._queue_timeout_s)
            if item in self._queued:
                del self._queued[item]
                self._end(item, LifeEvent.REJECT, Failed(self._waited_too_long()))

    def _waited_too_long(self) -> Unavailable:
        return Unavailable(
            f"The request has waited {self._queue_timeout_s:g} s for its turn, which is the limit "
            "(--queue-timeout-s).",
            retry_after_s=1,
        )

    def _drop_finished_items(self) -> None:
        """Take cancelled items out of the channel, so that they hold no place in the queue."""
        waiting = []
        while True:
            try:
                waiting.append(self._receive.receive_nowait())
            except trio.WouldBlock:
                break
        for item in waiting:
            if item in self._queued:
                self._send.send_nowait(item)

    def _deliver(self, batch: _Batch) -> None:
        """Move the item's machines by one step's events. Runs on the loop and must not raise."""
        if not batch.item.record.closed:
            batch.item.record.graph_capture_count += batch.graph_captures
            batch.item.record.restore_ms = batch.restore_ms
        self._ledger.capsules = batch.capsules
        try:
            for event in batch.events:
                self._apply(batch.item, event, batch.at)
            self.activity.note(batch.item.record, batch.events, batch.at, batch.held)
        except Exception as fault:
            log.exception(
                "events of request %s could not be delivered", batch.item.record.request_id
            )
            self._fault = fault
            # Wakes the thread if it waits for the next item.
            self._send.close()

    def _apply(self, item: Item, event: TurnEvent, at: float) -> None:
        record = item.record
        match event:
            case Planned(plan, session):
                record.session = session
                record.prefix_action = plan.action.value
                record.cached_tokens = record.processed_tokens = plan.cached_tokens
                record.prompt_ids = plan.used
                record.replayed_tokens = plan.used.replayed_tokens
                record.miss = plan.miss
            case Progressed(position):
                record.processed_tokens = position
            case Prefilled(lineage):
                item.life.fire(LifeEvent.PREFILLED)
                record.prefilled_at = at
                record.processed_tokens = record.prompt_tokens
                record.lineage = tuple((s.stop, s.decoded, s.beyond) for s in lineage)
            case Pinned(report):
                record.pin = report
            case Saved(error):
                # The state of the end is saved behind it, when the record is closed already.
                if not record.closed:
                    record.saved_capsules += not error
                    record.capsule_faults += bool(error)
                self._ledger.capsule_faults += bool(error)
                if error:
                    log.warning("request %s: no capsule: %s", record.request_id, error)
            case Answered(deltas, tokens, drafted, accepted, drafter, logprobs):
                record.first_token_at = record.first_token_at or at
                record.completion_tokens += len(tokens)
                if tokens:
                    record.generation.count(len(tokens), drafted, accepted, drafter)
                item.sink.put(Output(deltas, tokens, logprobs))
                if item.sink.is_overfull:
                    item.cancel.cancel(Unavailable("The client does not read its answer."))
            case Told(answer):
                assert isinstance(item, SessionItem), "only session calls are told something"
                item.answer = answer
            case Ended():
                self._finish(item, event, at)

    def _finish(self, item: Item, event: Ended, at: float) -> None:
        item.record.finished_at = at
        if event.ending is not None:
            ending = event.ending
            item.record.reasoning_tokens = ending.reasoning_tokens
            terminal: Finished | Failed = Finished(ending.reason, ending.stop_string)
        else:
            terminal = Failed(event.error or item.cancel.reason)
        self._end(item, event.event, terminal)

    def _end(self, item: Item, event: LifeEvent, terminal: Finished | Failed) -> None:
        """The one place where an item reaches its terminal state."""
        if item is self._running:
            self._running = None
        record = item.record
        record.terminal_state = item.life.fire(event)
        record.finished_at = record.finished_at or time.perf_counter()
        if isinstance(terminal, Failed):
            record.fail(terminal.error)
        item.sink.end(terminal)
        self._ledger.close(record)

    def _end_all(self, event: LifeEvent, error: FlashRTError) -> None:
        """Nothing will be served any more: tell everybody who waits."""
        unserved = [*self._queued, *([self._running] if self._running else [])]
        self._queued.clear()
        self._running = None
        for item in unserved:
            self._end(item, event, Failed(error))

    # -- on the engine thread ----------------------------------------

    def _thread(self) -> None:
        self._outbox = Outbox(self._trio, self._deliver)
        with contextlib.closing(self._outbox):
            self._work()

    def _work(self) -> None:
        wait_s = math.inf
        while self._park_s is None:
            self._serve_next(wait_s)
            wait_s = TEND_EVERY_S if self._tending.between_requests() else math.inf
            if time.perf_counter() >= self._tidied_at + TIDY_EVERY_S:
                self._tidy()
                self._tidied_at = time.perf_counter()
        self._tending.park(self._perform, self._park_s)
        trio.from_thread.run_sync(self._parked.set)

    def _serve_next(self, wait_s: float) -> None:
        """An item that comes in time. Nothing refers to it afterwards: an idle server holds no
        answer of an earlier request."""
        held = self._turns.policy.store.report()
        item = trio.from_thread.run(self._next_item, wait_s, held)
        if item is not None:
            try:
                self._serve(item)
            finally:
                self._outbox.flush()

    def _serve(self, item: Item) -> None:
        engine = self._performer.engine
        seen = engine.graph_capture_count
        self._measured.begin()
        with contextlib.closing(self._run(item)) as batches:
            for events in batches:
                if self._fault is not None:
                    raise self._fault
                if events:
                    captures, seen = engine.graph_capture_count - seen, engine.graph_capture_count
                    self._outbox.post(self._batch(item, events, captures))
                    if isinstance(events[-1], Ended):
                        item.sink.wait_until_left(GIVES_WAY_S)
                trio.from_thread.check_cancelled()
            if not events:  # what was done behind the last event shows in what is held
                self._outbox.post(self._batch(item, (), 0))

    def _run(self, item: Item) -> Batches:
        match item:
            case WorkItem():
                return self._turns.run(item.turn, self._perform)
            case SessionItem():
                return self._calls.run(item.work, self._perform)

    def _batch(self, item: Item, events: tuple[TurnEvent, ...], captures: int) -> _Batch:
        at, restore_ms = time.perf_counter(), self._measured.restore_ms
        return _Batch(item, events, at, captures, restore_ms, *self._holdings.behind(events))

    def _perform(self, step: Step) -> StepResult:
        """One step; what it took is what the policy's next estimates are made of."""
        position, started = self._performer.engine.position, time.perf_counter()
        result = self._performer.perform(step)
        ms = (time.perf_counter() - started) * 1000
        self._measured.took(step, result, self._performer.engine.position - position, ms)
        return result
