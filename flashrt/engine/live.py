"""The live state: static buffers, the lengths that say what in them counts, and their capsules.

    position    tokens processed
    anchor      newest chunk of 64 whose anchor S is stored; the one before it is kept
    floor       no state below this position can be rebuilt
    mtp.filled  slots of the MTP layer's cache that hold what they hold for good
    ahead       the id of a row at `position` that is computed and does not count yet

A chunk is folded when the first row behind it is processed, not when its last one is: so a rollback
of 64 ids always finds its anchor, and a draft that crosses a multiple of 64 changes no anchor
before it is known to stay.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import torch
from torch import Tensor

from flashrt.engine.buffers import CHUNK, RING, RING_CHUNKS, Buffers
from flashrt.engine.config import ModelConfig
from flashrt.engine.kernels import model_for
from flashrt.engine.linear import ROWS_MAX
from flashrt.engine.model import Model
from flashrt.engine.moving import as_wide
from flashrt.engine.mtp import Choose, MtpState
from flashrt.engine.paged import Paged, first_rows
from flashrt.engine.passes import ring_index
from flashrt.engine.protocol import Capsule
from flashrt.engine.rowblocks import LiveRows
from flashrt.engine.weights import ModelWeights
from flashrt.errors import CannotServe


@attrs.define(eq=False)
class LiveState:
    """One model's state. Moves forward by rows or blocks, back by lengths."""

    model: Model
    buffers: Buffers
    mtp: MtpState | None
    position: int = 0
    anchor: int = 0
    floor: int = 0
    rows: LiveRows = attrs.field(factory=LiveRows)
    """Blocks of capsules that the rows are equal to."""
    ahead: int | None = None
    """Forgotten whenever the position moves."""

    @classmethod
    def allocate(
        cls,
        config: ModelConfig,
        weights: ModelWeights,
        max_seq: int,
        kv_dtype: torch.dtype | None = None,
    ) -> "LiveState":
        """Empty, on the device and in the dtype of the weights, K and V in `kv_dtype` if that is
        another. Raises CannotServe if too large."""
        device, dtype = weights.embed.device, weights.embed.dtype
        mtp = weights.mtp is not None
        allocate = partial(Buffers.allocate, kv_dtype=kv_dtype, mtp=mtp)
        try:
            buffers = allocate(config, max_seq, device, dtype)
        except RuntimeError as error:  # what torch raises for both devices when memory is short
            meta = torch.device("meta")
            need = allocate(config, max_seq, meta, dtype).nbytes
            raise CannotServe(
                f"max_seq = {max_seq} needs {need / 1e9:.1f} GB of state on {device}, which cannot "
                "be allocated; ask for a shorter window"
            ) from error
        model = model_for(config, weights, buffers)
        return cls(model, buffers, MtpState.of(model))

    @torch.inference_mode()
    def reset(self) -> None:
        """Nothing processed."""
        self.buffers.clear_start()
        self.position = self.anchor = self.floor = 0
        self.ahead = None
        self.rows.clear()
        if self.mtp:
            self.mtp.filled = 0

    # -- forward -----------------------------------------------------------------------------------

    @torch.inference_mode()
    def process_block(self, ids: Sequence[int]) -> None:
        """Process ids together; bits may depend on where the block begins and ends."""
        self._settle()
        if self.mtp:
            self.mtp.settle(self.position)
            before = self.mtp.before(self.position)
            hidden = self.model.block(ids, self.position)
            self.mtp.block(ids, self.position, before, hidden)
        else:
            self.model.block(ids, self.position)
        # The block leaves a chunk that ends with it open.
        self._processed(ids, anchor=(self.position + len(ids) - 1) // CHUNK)

    @torch.inference_mode()
    def process_rows(self, ids: Sequence[int]) -> None:
        """Process at most 64 ids, each with the bits it would have alone."""
        self._settle()
        if self.mtp:
            self.mtp.make_room(self.position, len(ids))
        if tuple(ids) != (self.ahead,):
            self.model.rows(ids, self.position, self.anchor)
        self._processed(ids, anchor=self.anchor)

    @property
    def may_run_ahead(self) -> bool:
        """Whether a row ahead costs no time and stores no anchor, which could not be taken back."""
        return self.model.runs_ahead and self.anchor == self.position // CHUNK

    @torch.inference_mode()
    def run_ahead(self, id_: Tensor) -> None:
        """Compute the row at `position` with the id [1] int64 that the device holds, where it may.

        Who knows the id sets `ahead` to it.
        """
        self.ahead = None
        self.model.row_ahead(id_, self.position, self.anchor)

    @property
    def rows_max(self) -> int:
        """Rows that may be processed and taken back without costing the ring what a rollback needs.

        64, or a few less shortly before a fold.
        """
        oldest = (self.position // CHUNK - 1) * CHUNK - self.model.config.conv_kernel + 1
        return min(ROWS_MAX, oldest + RING - self.position)

    @torch.inference_mode()
    def logits(self) -> Tensor:
        """[V] float32 for the id at `position`. At least one token must be processed."""
        return self.model.logits(self.position)

    @torch.inference_mode()
    def logits_of(self, count: int) -> Tensor:
        """[count, V] float32 behind each of the newest `count` rows, at most 64."""
        return self.model.logits_of(self.position, count)

    @torch.inference_mode()
    def best_of(self, count: int, limit: int) -> tuple[Tensor, Tensor]:
        """The best scores and ids [count] behind the same rows; see `Model.best_of`."""
        return self.model.best_of(self.position, count, limit)

    @torch.inference_mode()
    def draft(self, pending: int, count: int, choose: Choose) -> tuple[int, ...]:
        """At most `count` ids that the MTP layer expects behind the pending one."""
        if self.mtp is None:
            return ()
        return self.mtp.draft(pending, self.position, count, choose)

    def _settle(self) -> None:
        """Fold what is complete: rows are about to be processed behind it."""
        while self.anchor < self.position // CHUNK:
            self.buffers.anchors[:, (self.anchor + 1) % 2] = self.model.folded(self.anchor)
            self.anchor += 1
        self.floor = max(self.floor, (self.anchor - 1) * CHUNK)

    def _processed(self, ids: Sequence[int], anchor: int) -> None:
        """The new rows count. The oldest rows of the ring are gone, the newest two anchors here."""
        if self.mtp:
            self.mtp.note(ids, self.position)
        self.position += len(ids)
        self.anchor, self.ahead = anchor, None
        oldest = self.position - RING + self.model.config.conv_kernel - 1
        self.floor = max(self.floor, (anchor - 1) * CHUNK, oldest)

    # -- back --------------------------------------------------------------------------------------

    def truncate(self, position: int) -> None:
        """Go back to a position that is not below `floor`. Only lengths change."""
        chunk = position // CHUNK
        if chunk < self.position // CHUNK:
            # The slot of the anchor before this chunk may hold a later one.
            self.floor = max(self.floor, chunk * CHUNK)
        self.anchor = min(self.anchor, chunk)
        self.take_back(position)

    def take_back(self, position: int) -> None:
        """Forget rows of the newest `process_rows`, as if they had never been processed.

        Those that stay must be as many as one. No anchor has been stored for them.
        """
        if position < self.position:
            self.ahead = None
        self.position = position
        self.rows.cut(position)
        if self.mtp:
            self.mtp.filled = min(self.mtp.filled, max(0, position - 1))

    # -- capsules ----------------------------------------------------------------------------------

    def saved(self, position: int) -> dict[str, Tensor]:
        """Copies of all that the state at `position` needs; floor <= position <= self.position.

        The bytes depend on the rows processed up to there only.
        """
        return {**self.saved_state(position), **self.saved_rows(0, position)}

    @torch.inference_mode()
    def saved_state(self, position: int) -> dict[str, Tensor]:
        """Copies of what does not grow with the tokens."""
        b = self.buffers
        chunk, rows = divmod(position, CHUNK)
        slot = chunk % RING_CHUNKS
        return {
            "anchor": self._anchors_before(chunk),  # [Ll, Hv, dk, dv]
            "keys": b.keys[:, slot, :rows].clone(),  # [Ll, rows, Hk, dk]
            "values": b.values[:, slot, :rows].clone(),  # [Ll, rows, Hv, dv]
            "decays": b.decays[:, slot, :rows].clone(),  # [Ll, rows, Hv]
            "raw": b.raw[:, self._before(position)],  # [Ll, kernel-1, C]
            "hidden": b.hidden[(position - 1) % RING].clone(),  # [h]
        }

    @torch.inference_mode()
    def saved_rows(self, start: int, stop: int) -> dict[str, Tensor]:
        """Copies of the rows [start, stop), and of the MTP slots that their ids completed."""
        b = self.buffers
        rows = {"kv": _copied(b.kv[:, :, :, start:stop])}  # [Lf, 2, Hkv, stop - start, d]
        if self.mtp and b.mtp_kv is not None:
            self.mtp.settle(self.position)
            rows["mtp_kv"] = _copied(b.mtp_kv[:, :, _slots(start, stop)])  # [2, Hkv, slots, d]
        return rows

    def new_bytes(self, position: int) -> int:
        """Bytes that a capsule at `position` would newly hold."""
        b = self.buffers
        state = b.state_bytes(position, self.model.config.conv_kernel)
        return state + b.row_bytes(self.rows.missing(position), position)

    def load(self, position: int, saved: Mapping[str, Tensor]) -> None:
        """Become a saved state, bit for bit."""
        self.rows.clear()
        self._load_rows(0, position, saved)
        self._load_state(position, saved)

    def become(self, capsule: Capsule) -> None:
        """Become the state of a capsule, bit for bit; rows that are its already are not copied."""
        position = capsule.position
        kept = self.rows.kept(capsule.rows, position)
        for block in capsule.rows[kept:]:
            self._load_rows(block.start, min(block.stop, position), block.buffers)
        self._load_state(position, capsule.state)
        self.rows.hold(capsule.rows, position)

    @torch.inference_mode()
    def _load_state(self, position: int, saved: Mapping[str, Tensor]) -> None:
        b = self.buffers
        chunk, rows = divmod(position, CHUNK)
        slot = chunk % RING_CHUNKS
        raw = b.raw[:, self._before(position)]
        for target, name in (
            (b.anchors[:, chunk % 2], "anchor"),
            (b.keys[:, slot, :rows], "keys"),
            (b.values[:, slot, :rows], "values"),
            (b.decays[:, slot, :rows], "decays"),
            (raw, "raw"),
            (b.hidden[(position - 1) % RING], "hidden"),
        ):
            _put(target, saved[name], name)
        b.raw[:, self._before(position)] = raw
        if self.mtp:
            self.mtp.filled = max(0, position - 1)
        self.position, self.anchor, self.floor = position, chunk, position
        self.ahead = None

    @torch.inference_mode()
    def _load_rows(self, start: int, stop: int, saved: Mapping[str, Tensor]) -> None:
        """Rows [start, stop) of buffers that begin at `start` and may reach further."""
        b = self.buffers
        _put(b.kv[:, :, :, start:stop], first_rows(saved["kv"], stop - start), "kv")
        if b.mtp_kv is not None:
            slots = _slots(start, stop)
            rows = first_rows(saved["mtp_kv"], slots.stop - slots.start)
            _put(b.mtp_kv[:, :, slots], rows, "mtp_kv")

    def _anchors_before(self, chunk: int) -> Tensor:
        """[Ll, Hv, dk, dv]: stored, or folded from the open chunk just before."""
        if chunk <= self.anchor:
            return self.buffers.anchors[:, chunk % 2].clone()
        return self.model.folded(chunk - 1)

    def _before(self, position: int) -> Tensor:
        """Where the raw rows lie that a convolution at `position` still sees."""
        kernel = self.model.config.conv_kernel
        return ring_index(position - kernel + 1, position, self.buffers.raw.device)


def _slots(start: int, stop: int) -> slice:
    """The MTP slots of the rows [start, stop): slot p - 1 waits for the id of row p."""
    return slice(max(0, start - 1), max(0, stop - 1))


def _put(target: Tensor, saved: Tensor | Paged, name: str) -> None:
    """Copy, also from host memory; a plain assignment would stretch or convert what does not fit.

    Raises ValueError.
    """
    if target.shape != saved.shape or target.dtype != saved.dtype:
        raise ValueError(
            f"{name!r} is {saved.dtype} {tuple(saved.shape)}; this state has "
            f"{target.dtype} {tuple(target.shape)}"
        )
    if isinstance(saved, Paged):
        saved.into(target)
        return
    as_wide(target).copy_(as_wide(saved))


def _copied(part: Tensor) -> Tensor:
    """A contiguous copy."""
    return as_wide(part).clone(memory_format=torch.contiguous_format).view(part.dtype)
