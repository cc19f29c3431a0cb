"""What crosses between a handler and the engine thread: the items, their cancel token and sink."""

import math
import threading
from collections.abc import AsyncIterator

import attrs
import trio

from flashrt.chat.deltas import Delta, FinishReason
from flashrt.chat.prompt import Prompt
from flashrt.chat.request import AgentRequest
from flashrt.chat.session_call import SessionAnswer
from flashrt.engine.protocol import TokenLogprobs
from flashrt.errors import ClientLeft, FlashRTError
from flashrt.fsm.lifecycle import LIFECYCLE, Life, LifeEvent
from flashrt.fsm.sink import SINK, SinkEvent, SinkState
from flashrt.fsm.table import Machine
from flashrt.metrics.record import RequestRecord
from flashrt.policy.session_calls import SessionWork
from flashrt.policy.turn import Turn


class CancelToken:
    """One flag: set on the trio loop, read by the engine thread at boundaries. Never unset.

    `why`: what the client is told, if it is still there.
    """

    def __init__(self) -> None:
        self._cancelled = False
        self.why: FlashRTError | None = None

    def cancel(self, why: FlashRTError | None = None) -> None:
        """Ask for the end at the next boundary. Idempotent: the first reason counts."""
        if not self._cancelled:
            self.why = why
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        """Whether the end was asked for."""
        return self._cancelled

    @property
    def reason(self) -> FlashRTError:
        """What the request ends with; nobody hears it unless there is a reason to tell."""
        return self.why or ClientLeft("The client left.")


WAITING_MAX_BYTES = 64 << 20
"""What may wait for one reader: many answers of text, and an end to a hoard of logprobs."""

ID_BYTES, LOGPROB_BYTES, OUTPUT_BYTES = 32, 120, 200
"""Of Python's objects: an id, a pair of id and logprob, an output with its tuples."""


@attrs.frozen
class Output:
    """What one engine step added to the answer. `logprobs`: one per id, if they were asked for."""

    deltas: tuple[Delta, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory while it waits for its reader."""
        texts = sum(len(getattr(delta, "text", "")) for delta in self.deltas)
        told = sum(1 + len(logprobs.top) for logprobs in self.logprobs)
        return texts + ID_BYTES * len(self.token_ids) + LOGPROB_BYTES * told + OUTPUT_BYTES


@attrs.frozen
class Finished:
    """The answer is whole. The item's record holds the counts.

    `stop_string`: the one that ended it, where one did.
    """

    reason: FinishReason
    stop_string: str | None = None


@attrs.frozen
class Failed:
    """The answer will not be whole: an error, a cancel, or a late rejection."""

    error: FlashRTError


SinkItem = Output | Finished | Failed


class ResultSink:
    """Where the answer of one item goes. Lives on the trio loop; never blocks the engine.

    It holds a whole answer: one entry per step and the end, so the bound is the answer's tokens.
    """

    def __init__(self, max_outputs: float = math.inf) -> None:
        self._send, self._receive = trio.open_memory_channel[SinkItem](max_outputs)
        self.machine = Machine(SINK)
        self.waiting_bytes = 0
        self._left = threading.Event()

    def put(self, output: Output) -> None:
        """Add a piece; a client that is gone gets nothing."""
        if self.machine.fire(SinkEvent.DELTA) is SinkState.GONE:
            return
        self._send.send_nowait(output)
        self.waiting_bytes += output.size_bytes

    @property
    def is_overfull(self) -> bool:
        """Whether more waits than any reader may leave lying: its request must end."""
        return self.waiting_bytes > WAITING_MAX_BYTES

    def end(self, event: Finished | Failed) -> None:
        """Add the one terminal event and close."""
        gone = self.machine.state is SinkState.GONE
        self.machine.fire(SinkEvent.END)
        if not gone:
            self._send.send_nowait(event)
        self._send.close()

    def leave(self) -> None:
        """The client is gone (or has read the end)."""
        self.machine.fire(SinkEvent.LEAVE)
        self._receive.close()
        self._left.set()

    def wait_until_left(self, timeout_s: float) -> bool:
        """Let the loop have the interpreter until `leave`, and no longer than this; whether there
        was one. For the engine thread."""
        return self._left.wait(timeout_s)

    async def receive(self) -> SinkItem:
        """The next piece; after the terminal event `trio.EndOfChannel`. Cancel-safe."""
        return self._taken(await self._receive.receive())

    def receive_nowait(self) -> SinkItem:
        """The next piece if one waits, else `trio.WouldBlock`."""
        return self._taken(self._receive.receive_nowait())

    async def __aiter__(self) -> AsyncIterator[SinkItem]:
        async for item in self._receive:
            yield self._taken(item)

    def _taken(self, item: SinkItem) -> SinkItem:
        if isinstance(item, Output):
            self.waiting_bytes -= item.size_bytes
        return item


@attrs.define(eq=False)
class WorkItem:
    """One request on its way through the worker. Its machines move on the trio loop only."""

    request: AgentRequest
    prompt: Prompt
    turn: Turn
    record: RequestRecord
    waiter: str = ""
    """Whose places in the queue are counted together."""
    cancel: CancelToken = attrs.field(factory=CancelToken)
    sink: ResultSink = attrs.field(factory=ResultSink)
    life: Machine[Life, LifeEvent] = attrs.field(factory=lambda: Machine(LIFECYCLE))

    @property
    def over(self) -> bool:
        """Whether the item is in a terminal state."""
        return self.life.over


@attrs.define(eq=False)
class SessionItem:
    """One session call on its way through the worker, in the same line as the requests.

    Its sink gets nothing but the end; `answer` is there before it.
    """

    work: SessionWork
    record: RequestRecord
    waiter: str = ""
    cancel: CancelToken = attrs.field(factory=CancelToken)
    sink: ResultSink = attrs.field(factory=ResultSink)
    life: Machine[Life, LifeEvent] = attrs.field(factory=lambda: Machine(LIFECYCLE))
    answer: SessionAnswer | None = None

    @property
    def over(self) -> bool:
        """Whether the item is in a terminal state."""
        return self.life.over


Item = WorkItem | SessionItem
