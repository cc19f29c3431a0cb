"""An engine without a model that obeys every law, and refuses what the real one cannot do.

The next id is a hash of every id that was really processed, and of the pending one. So a state that
leads, lags, mixes two sessions or survives a reset changes the text.
"""

import hashlib
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import numpy as np

from flashrt.engine.pages import Pages
from flashrt.engine.protocol import (
    ROLLBACK_MAX,
    Capsule,
    Constraint,
    ContextFull,
    DecodeChunk,
    EngineInfo,
    EngineMisuse,
    RawBuffer,
    RowBlock,
    RowConstraint,
    SamplingParams,
    TokenLogprobs,
)
from flashrt.engine.rowblocks import LiveRows

T = TypeVar("T")

PAGE_BYTES = 64
"""Of host memory that was taken: eight ids."""


@attrs.frozen(eq=False)
class FakeCopy:
    """A copy that is made when it is begun."""

    buffers: Mapping[str, np.ndarray]
    done: bool = True

    def wait(self) -> Mapping[str, np.ndarray]:
        """The copy."""
        return self.buffers


class FakeEngine:
    """A strict stand-in. `burst_max` > 1 makes decode yield bursts, as accepted drafts would."""

    def __init__(
        self,
        *,
        vocab_size: int = 64,
        max_seq: int = 256,
        burst_max: int = 1,
        identity: str = "fake",
    ) -> None:
        self._info = EngineInfo(
            "fake",
            vocab_size,
            max_seq,
            "none",
            "none",
            identity,
            draft_tokens_max=burst_max - 1,
            drafters=("fake",) if burst_max > 1 else (),
        )
        self._burst_max = burst_max
        self._epoch = 0
        self.graph_capture_count = 0
        self._processed: list[int] = []
        self._pending: int | None = None
        self._floor = 0
        self._rows = LiveRows()
        self._pages: Pages | None = None
        self._gone: deque[range] = deque()

    @property
    def info(self) -> EngineInfo:
        """Facts that never change."""
        return self._info

    @property
    def position(self) -> int:
        """Tokens really processed."""
        return len(self._processed)

    @property
    def journal(self) -> Sequence[int]:
        """Processed ids and the pending one."""
        pending = () if self._pending is None else (self._pending,)
        return (*self._processed, *pending)

    def reset(self) -> None:
        """Forget everything."""
        self._changed()
        self._processed, self._pending, self._floor = [], None, 0
        self._rows.clear()

    def prefill(self, tokens: Sequence[int], cuts: Sequence[int] = ()) -> Iterator[int]:
        """Extend by `tokens`, piece by piece."""
        return self._guarded(self._prefill(tuple(tokens), tuple(cuts)))

    def decode(
        self, params: SamplingParams, constraint: Constraint | None = None
    ) -> Iterator[DecodeChunk]:
        """Yield bursts of hashed ids."""
        return self._guarded(self._decode(params, constraint))

    def drop_pending(self) -> None:
        """Forget the pending id."""
        self._changed()
        self._pending = None

    def rollback(self, n: int) -> None:
        """Drop the newest n journal ids."""
        left = len(self.journal) - n
        if not 0 <= n <= ROLLBACK_MAX:
            raise EngineMisuse(f"rollback of {n} ids; 0 to {ROLLBACK_MAX} are possible")
        if left < 1 or left - 1 < self._floor:
            raise EngineMisuse(f"rollback to {left - 1} processed ids; the floor is {self._floor}")
        self._changed()
        journal = self.journal
        crossed = (left - 1) // ROLLBACK_MAX < self.position // ROLLBACK_MAX
        self._processed, self._pending = list(journal[: left - 1]), journal[left - 1]
        self._rows.cut(left - 1)
        if crossed:
            self._floor = max(self._floor, self.position // ROLLBACK_MAX * ROLLBACK_MAX)

    def snapshot(self, length: int | None = None) -> Capsule:
        """The state here, or as it stood at `length` processed ids; rows are shared."""
        at = self._reachable(length)
        state = {"position": np.array([at], dtype=np.int64)}
        return Capsule(
            position=at,
            pending=self._pending if length is None else None,
            identity=self._info.identity,
            state=state,
            state_bytes=state["position"].nbytes,
            rows=self._rows.covering(at, self._processed, self._saved),
        )

    def snapshot_bytes(self, length: int | None = None) -> int:
        """Eight bytes a row that is not shared, and eight for the state."""
        at = self._reachable(length)
        return 8 * (1 + max(0, at - self._rows.missing(at)))

    def restore(self, capsule: Capsule) -> None:
        """Become the state of `capsule`: ids from the buffers, or live where they are equal."""
        if capsule.identity != self._info.identity:
            raise EngineMisuse(f"a capsule of {capsule.identity!r} for {self._info.identity!r}")
        self._changed()
        position = int(capsule.state["position"][0])
        kept = self._rows.kept(capsule.rows, position)
        del self._processed[capsule.rows[kept].start if kept < len(capsule.rows) else position :]
        for block in capsule.rows[kept:]:
            self._processed += map(int, block.buffers["processed"][: position - block.start])
        self._rows.hold(capsule.rows, position)
        self._pending = capsule.pending
        self._floor = self.position

    def take_host(self, size_bytes: int, /) -> int:
        """Whole pages; none of them is there, but they are counted."""
        self._pages = Pages([range(size_bytes // PAGE_BYTES)])
        return self._pages.count * PAGE_BYTES

    def host_bytes(self, size_bytes: int, /) -> int:
        """In whole pages of what was taken."""
        pages = -(-size_bytes // PAGE_BYTES)
        return size_bytes if self._pages is None else pages * PAGE_BYTES

    def to_host(self, buffers: Mapping[str, Any], /) -> FakeCopy:
        """A plain copy, all parts of which lie in one array."""
        room = np.empty(sum(buffer.nbytes for buffer in buffers.values()), dtype=np.uint8)
        if self._pages is not None:
            while self._gone:
                self._pages.give(self._gone.popleft())
            for run in self._pages.take(self.host_bytes(room.nbytes) // PAGE_BYTES):
                weakref.finalize(room, self._gone.append, run).atexit = False
        copy, start = {}, 0
        for name, buffer in buffers.items():
            copy[name] = room[start : start + buffer.nbytes].view(buffer.dtype)
            copy[name][:] = buffer
            start += buffer.nbytes
        return FakeCopy(copy)

    def for_file(self, buffers: Mapping[str, Any], /) -> FakeCopy:
        """A plain copy."""
        return FakeCopy({name: buffer.copy() for name, buffer in buffers.items()})

    def to_device(self, buffers: Mapping[str, Any], /) -> Mapping[str, Any]:
        """A plain copy."""
        return {name: buffer.copy() for name, buffer in buffers.items()}

    def to_bytes(self, buffers: Mapping[str, Any], /) -> Mapping[str, RawBuffer]:
        """Views."""
        return {
            name: RawBuffer(str(b.dtype), b.shape, memoryview(b).cast("B"))
            for name, b in buffers.items()
        }

    def from_bytes(self, raw: Mapping[str, RawBuffer], /) -> Mapping[str, Any]:
        """Arrays of 64-bit integers."""
        data = {name: b"".join(b.pieces) for name, b in raw.items()}
        if any(b.dtype != "int64" or len(data[n]) != 8 * b.shape[0] for n, b in raw.items()):
            raise ValueError(f"no buffers of the fake engine: {sorted(raw)}")
        return {name: np.frombuffer(joined, np.int64) for name, joined in data.items()}

    def refill(self, block: RowBlock, /) -> Mapping[str, Any]:
        """The ids of the block."""
        if not self._rows.equal_to(block):
            raise EngineMisuse(f"the live rows are not those of [{block.start}, {block.stop})")
        return self._saved(block.start, block.stop)

    # -- inside ----------------------------------------

    def _reachable(self, length: int | None) -> int:
        if self.position == 0:
            raise EngineMisuse("snapshot of an empty state")
        at = self.position if length is None else length
        reach = max(self._floor, self.position - ROLLBACK_MAX, 1)
        if not reach <= at <= self.position:
            raise EngineMisuse(f"snapshot at {at}; {reach} to {self.position} can be reached")
        return at

    def _saved(self, start: int, stop: int) -> dict[str, np.ndarray]:
        return {"processed": np.array(self._processed[start:stop], dtype=np.int64)}

    def _changed(self) -> None:
        self._epoch += 1

    def _guarded(self, steps: Iterator[T]) -> Iterator[T]:
        """Resume `steps` only while nothing else has changed the state since they began."""
        self._changed()
        epoch = self._epoch
        while True:
            if self._epoch != epoch:
                raise EngineMisuse("the state was changed while this generator stood at a boundary")
            try:
                value = next(steps)
            except StopIteration:
                return
            yield value

    def _prefill(self, tokens: tuple[int, ...], cuts: tuple[int, ...]) -> Iterator[int]:
        start, end = self.position, self.position + len(tokens)
        if not tokens or not all(0 <= id_ < self._info.vocab_size for id_ in tokens):
            raise EngineMisuse("prefill needs ids of the vocabulary, at least one")
        if list(cuts) != sorted(set(cuts)) or not all(start < cut < end for cut in cuts):
            raise EngineMisuse(f"cuts {cuts} do not rise inside ({start}, {end})")
        if end > self._info.max_seq:
            raise ContextFull(f"{end} tokens; max_seq is {self._info.max_seq}")
        self._pending = None
        for stop in (*cuts, end):
            self._processed += tokens[self.position - start : stop - start]
            yield self.position

    def _decode(
        self, params: SamplingParams, constraint: Constraint | None
    ) -> Iterator[DecodeChunk]:
        if self.position == 0:
            raise EngineMisuse("decode before any prefill or restore")
        if self._pending in params.stop_ids:
            raise EngineMisuse(f"the pending id {self._pending} is a stop id")
        accepted: tuple[int, ...] = ()
        while len(self.journal) < self._info.max_seq and self._pending not in params.stop_ids:
            told: list[TokenLogprobs] = []
            accepted = self._burst(params, constraint, accepted, told)
            drafted = len(accepted) - 1
            yield DecodeChunk(accepted, drafted, "fake" if drafted else "", tuple(told))

    def _burst(
        self,
        params: SamplingParams,
        constraint: Constraint | None,
        accepted: tuple[int, ...],
        told: list[TokenLogprobs],
    ) -> tuple[int, ...]:
        """1 .. burst_max ids: how many is a function of what was processed, like acceptance."""
        most = self._burst_max
        if params.draft_tokens is not None:
            most = min(most, 1 + params.draft_tokens)
        size = 1 if constraint else 1 + self._digest("burst", 0) % most
        room = self._info.max_seq - len(self.journal)
        row = constraint(accepted, ())[0] if constraint else None
        burst: list[int] = []
        while len(burst) < min(size, room) and self._pending not in params.stop_ids:
            if self._pending is not None:
                self._processed.append(self._pending)
            self._pending = self._choose(params, row)
            burst.append(self._pending)
            if params.logprobs is not None:
                told.append(self._logprobs(self._pending, params.logprobs))
        return tuple(burst)

    def _choose(self, params: SamplingParams, row: RowConstraint) -> int:
        if isinstance(row, int):
            return row
        seed = params.seed if params.temperature > 0 else 0
        allowed = np.arange(self._info.vocab_size) if row is None else np.flatnonzero(row)
        if not len(allowed):
            raise EngineMisuse("a constraint that allows no id")
        return int(allowed[self._digest("choose", seed) % len(allowed)])

    def _logprobs(self, chosen: int, count: int) -> TokenLogprobs:
        """A hashed id is the likeliest, the ids behind it follow: -1, -2, -3 and so on."""
        size = self._info.vocab_size
        first = self._digest("logprobs", 0) % size
        top = tuple(((first + i) % size, -1.0 - i) for i in range(min(count, size)))
        return TokenLogprobs(-1.0 - (chosen - first) % size, top)

    def _digest(self, purpose: str, seed: int) -> int:
        text = f"{purpose} {seed} {self._processed}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
