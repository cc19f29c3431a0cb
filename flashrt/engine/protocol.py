"""What every engine does and promises. It knows token ids, never messages, sessions or HTTP.

One thread calls an engine. An engine has one *live state*; the ids that this state stands for are
its *journal*:

    journal     [ processed by the state ......... )[ at most one pending id ]
                0                            position                 len(journal)

After `prefill` the position is len(journal), and the last hidden row is kept. After `decode` and
after `rollback` it is len(journal) - 1: the newest id is in the journal and not yet in the state.

`prefill` and `decode` are generators that stand still at boundaries; between two boundaries nothing
may be interrupted. While one of them stands at a boundary, `snapshot` may be called. Calling any
method that changes the state makes an open generator stale: resuming it raises `EngineMisuse`.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
import numpy as np

ROLLBACK_MAX = 64
"""No engine rolls back further than this many journal ids: one chunk of the anchored window."""

ID_TYPE, ID_BYTES = "i", 4
"""Packed ids: 32-bit integers in this machine's byte order."""

RowConstraint = None | int | np.ndarray
"""One row's limits: None = free, an int = this id and no other, bool [vocab_size] = allowed ids."""


def pack_ids(ids: Sequence[int]) -> bytes:
    """Ids as bytes, `ID_BYTES` each: long lists compare as fast as memory is read."""
    return array(ID_TYPE, ids).tobytes()


class EngineMisuse(AssertionError):
    """A call that no engine can honour in its present state. A bug of the caller."""


class ContextFull(ValueError):
    """The tokens would pass `max_seq`. Nothing was changed."""


@attrs.frozen
class EngineInfo:
    """What a caller must know. `identity` keys capsules: weights, config, dtypes and code."""

    model_name: str
    vocab_size: int
    max_seq: int
    device: str
    dtype: str
    identity: str
    kv_dtype: str = ""
    """Of the keys and values in a state; "" where it has none."""
    rollback_max: int = ROLLBACK_MAX
    unused: tuple[str, ...] = ()
    """Parts of the checkpoint that this engine does not use, in words, to be named at start."""
    draft_tokens_max: int = 0
    """The MTP layer drafts at most so many ids a step; 0: nothing is ever drafted."""
    drafters: tuple[str, ...] = ()
    """Of "mtp" and "lookup", what there is to draft with."""

    @property
    def on_gpu(self) -> bool:
        """Whether it has a memory apart from the host's."""
        return self.device.startswith("cuda")


@attrs.frozen
class SamplingParams:
    """How the next id is chosen. A value of 0 (1 for `top_p`, `repetition_penalty`) is 'off'.

    Noise for position i is a function of (seed, i, id) only, so the text depends on the seed and
    the logits, never on drafts or restores. `temperature` 0 is greedy; ties go to the lowest id.
    Presence and frequency penalties count journal ids from `output_start` on, the repetition
    penalty counts the whole journal. `stop_ids` end decode: a stop id is yielded, never processed.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = attrs.field(factory=dict)
    seed: int = 0
    output_start: int = 0
    stop_ids: frozenset[int] = frozenset()
    draft_tokens: int | None = None
    """Ids drafted a step; never changes the text. None: as acceptance tells; 0: none."""
    logprobs: int | None = None
    """How many of the likeliest ids are told with each id; None: nothing is told."""


@attrs.frozen
class TokenLogprobs:
    """Log-probabilities at one position: of the id that was chosen, and of the likeliest ids.

    Of the model's own distribution: the softmax of the raw logits over all ids that belong to a
    token, before penalties, biases, constraints, temperature, top_k, top_p and min_p. `top` goes
    down from the likeliest; of equals the lowest id comes first.
    """

    chosen: float
    top: tuple[tuple[int, float], ...] = ()


@attrs.frozen
class DecodeChunk:
    """The journal ids of one accept boundary: 1 .. drafted + 1 of them.

    All but the last were drafted, by `drafter`; the last one is the model's own.
    """

    tokens: tuple[int, ...]
    drafted: int = 0
    drafter: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per id where they were asked for, else none."""


@attrs.define(eq=False)
class RowBlock:
    """Rows [start, stop) of all that grows with the tokens. Capsules share it.

    What it says never changes; where it lies may: whoever keeps capsules puts equal `buffers` of
    another memory in their place, or none while the rows are in files only. `packed` holds the ids
    of the rows, see `pack_ids`.
    """

    start: int
    packed: bytes
    buffers: Mapping[str, Any]
    block_bytes: int

    @property
    def stop(self) -> int:
        """The position behind the last row."""
        return self.start + len(self.packed) // ID_BYTES


@attrs.frozen(eq=False)
class Capsule:
    """The complete execution state at one boundary, as named buffers. Immutable.

    `position` ids are processed, at most one more is pending. `state` holds the buffers that do not
    grow with the tokens. `rows` follow each other without a gap from 0 and cover [0, position); the
    last may reach further. Capsules of one lineage share them: the same objects, held once.
    """

    position: int
    pending: int | None
    identity: str
    state: Mapping[str, Any]
    state_bytes: int
    rows: tuple[RowBlock, ...]

    @property
    def capsule_bytes(self) -> int:
        """All that the capsule refers to, shared rows included."""
        return self.state_bytes + sum(block.block_bytes for block in self.rows)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The journal: the processed ids, and the pending one."""
        ids = array(ID_TYPE, b"".join(block.packed for block in self.rows))[: self.position]
        return (*ids,) if self.pending is None else (*ids, self.pending)

    def heads(self, packed: bytes) -> bool:
        """Whether every processed id is that of `packed` (see `pack_ids`) at the same place."""
        view = memoryview(packed)
        for block in self.rows:
            stop = min(block.stop, self.position)
            ours = memoryview(block.packed)[: (stop - block.start) * ID_BYTES]
            if bytes(ours) != bytes(view[block.start * ID_BYTES : stop * ID_BYTES]):
                return False
        return True


@attrs.frozen(eq=False)
class RawBuffer:
    """A named buffer as bytes: rows in C order, in this machine's byte order."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | bytearray | memoryview | tuple[memoryview, ...]
    """Several: in pieces, one behind the other."""

    @property
    def pieces(self) -> tuple[memoryview, ...]:
        """Its bytes, one view behind the other."""
        return self.data if isinstance(self.data, tuple) else (memoryview(self.data),)


class HostCopy(Protocol):
    """Buffers on their way to host memory. What is copied may not change until it is done.

    A copy that nobody refers to is given up.
    """

    @property
    def done(self) -> bool:
        """Whether `wait` would return at once. Raises nothing."""
        ...

    def wait(self) -> Mapping[str, Any]:
        """The buffers in host memory, whole. Raises what the copying has raised."""
        ...


class Carrier(Protocol):
    """Moves buffers of capsules between the engine's memory, the host's, and bytes. Only reads."""

    def take_host(self, size_bytes: int, /) -> int:
        """Take host memory for all copies of `to_host`, once and at start; how much there is.

        From then on these copies take nothing else; until then they are limited by the system only.
        """
        ...

    def host_bytes(self, size_bytes: int, /) -> int:
        """What one copy of so many bytes takes of it. Whatever fits by the sum of these fits."""
        ...

    def to_host(self, buffers: Mapping[str, Any], /) -> HostCopy:
        """Begin a copy in host memory, beside whatever the engine computes.

        Its room is free again when nobody refers to its buffers, or to bytes of them. Raises
        MemoryError where there is none.
        """
        ...

    def for_file(self, buffers: Mapping[str, Any], /) -> HostCopy:
        """The same in memory that does not count, for what is gone as soon as it is written."""
        ...

    def to_device(self, buffers: Mapping[str, Any], /) -> Mapping[str, Any]:
        """A copy of host buffers in the engine's memory. Raises what allocating raises."""
        ...

    def to_bytes(self, buffers: Mapping[str, Any], /) -> Mapping[str, RawBuffer]:
        """Buffers that lie in host memory, as views of their bytes."""
        ...

    def from_bytes(self, raw: Mapping[str, RawBuffer], /) -> Mapping[str, Any]:
        """Buffers in host memory. Raises ValueError for bytes that are none of this engine's."""
        ...

    def refill(self, block: RowBlock, /) -> Mapping[str, Any]:
        """The rows of `block`, copied from the live state, whose rows must be equal to all of it.

        Raises EngineMisuse where they are not, or where nobody knows.
        """
        ...


class Constraint(Protocol):
    """Limits what decode may choose. Called on the engine thread, once per step."""

    def __call__(self, accepted: Sequence[int], draft: Sequence[int], /) -> Sequence[RowConstraint]:
        """One entry per row: len(draft) + 1 of them.

        `accepted` holds the ids accepted since the call before. The constraint's own state moves by
        `accepted` only; what it looks at for `draft` is undone before it returns.
        """
        ...


class Engine(Carrier, Protocol):
    """One hot, stateful model."""

    @property
    def info(self) -> EngineInfo:
        """Facts that never change. Only reads."""
        ...

    @property
    def position(self) -> int:
        """Tokens the live state has processed. Only reads."""
        ...

    @property
    def journal(self) -> Sequence[int]:
        """The ids of the live state: `position` of them, and at most one more. Only reads."""
        ...

    @property
    def graph_capture_count(self) -> int:
        """Graphs captured since start, outside of start-up; stays 0. Only reads."""
        ...

    def reset(self) -> None:
        """Forget everything: position 0, empty journal. Changes the state."""
        ...

    def prefill(self, tokens: Sequence[int], cuts: Sequence[int] = ()) -> Iterator[int]:
        """Extend the live state by `tokens`; a pending id is dropped first. Changes the state.

        `cuts` are absolute positions, strictly rising, inside (position, position + len(tokens));
        each piece between two cuts is one call over its rows together. Yields the position reached
        after each piece, the end included. The journal grows piece by piece.

        Raises (before anything is changed, at the first resume): ContextFull; EngineMisuse for no
        tokens, ids outside the vocabulary, or bad cuts.
        """
        ...

    def decode(
        self, params: SamplingParams, constraint: Constraint | None = None
    ) -> Iterator[DecodeChunk]:
        """Produce ids, one chunk per accept boundary, until a stop id or len(journal) = max_seq.

        Changes the state. The newest id of every chunk is pending: in the journal, not processed.
        Raises EngineMisuse at position 0, and where the pending id is one of `stop_ids`.
        """
        ...

    def drop_pending(self) -> None:
        """Forget the pending id, if there is one: decode chooses anew from the last hidden row.

        Changes the state.
        """
        ...

    def rollback(self, n: int) -> None:
        """Drop the newest n journal ids; exact, also across a fold. Changes the state.

        Afterwards the position is len(journal) - 1. Reaches at most `rollback_max` ids back, never
        below the last restore (or reset), nor below the floor that an earlier rollback across a
        fold left. Raises EngineMisuse beyond that, or if no id would be left; nothing is changed.
        """
        ...

    def snapshot(self, length: int | None = None) -> Capsule:
        """The state here, pending id included; or as it stood at `length` processed ids.

        `length` may lie as far back as a rollback could reach. Rows that a living capsule of this
        lineage holds are shared with it. Only reads.
        """
        ...

    def snapshot_bytes(self, length: int | None = None) -> int:
        """Bytes that `snapshot(length)` would newly hold: the state, and rows not yet held.

        Raises as `snapshot` does. Only reads.
        """
        ...

    def restore(self, capsule: Capsule) -> None:
        """Become the state of `capsule`, bit for bit. Changes the state.

        Its buffers may be the engine's own or lie in host memory, each for itself. Raises
        EngineMisuse if the capsule's identity is another engine's; nothing is changed.
        """
        ...
