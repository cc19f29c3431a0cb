"""The static buffers of the live state, allocated once for the longest context.

Everything lies by absolute position, so a rollback changes lengths only: stale rows are never read,
and are overwritten when their position comes again.
"""

import attrs
import torch
from torch import Tensor

from flashrt.engine.attention import SPLIT
from flashrt.engine.config import LINEAR, ModelConfig

CHUNK = 64
"""Tokens between two folds of the recurrent state, aligned to absolute position."""

RING_CHUNKS = 3
RING = RING_CHUNKS * CHUNK
"""Rows kept by position modulo this: two chunks in reach of a rollback, and what comes before."""


@attrs.frozen(eq=False)
class LinearState:
    """One linear layer's part of the buffers, as views."""

    anchors: Tensor
    """[2, Hv, dk, dv] float32: S before chunk c in slot c % 2."""
    raw: Tensor
    """[RING, C]: inputs of the convolution."""
    keys: Tensor
    """[RING_CHUNKS, CHUNK, Hk, dk]: convolved, not yet normalised."""
    values: Tensor
    """[RING_CHUNKS, CHUNK, Hv, dv] float32: the corrected values u."""
    decays: Tensor
    """[RING_CHUNKS, CHUNK, Hv] float32: G, the sum of log decays since the chunk began."""


@attrs.frozen(eq=False)
class Buffers:
    """All tensors of the live state; Ll linear and Lf full layers, in the order of the layers."""

    anchors: Tensor
    """[Ll, 2, Hv, dk, dv] float32."""
    raw: Tensor
    """[Ll, RING, C]."""
    keys: Tensor
    """[Ll, RING_CHUNKS, CHUNK, Hk, dk]."""
    values: Tensor
    """[Ll, RING_CHUNKS, CHUNK, Hv, dv] float32."""
    decays: Tensor
    """[Ll, RING_CHUNKS, CHUNK, Hv] float32."""
    kv: Tensor
    """[Lf, 2, Hkv, max_seq rounded up, d]: keys (normed and rotated), then values; in a dtype of
    its own, see `kvcache`."""
    hidden: Tensor
    """[RING, h]: final hidden rows, after the last norm."""
    linear: tuple[LinearState, ...]
    """Per linear layer its views."""
    mtp_kv: Tensor | None = None
    """[2, Hkv, max_seq rounded up, d] of the MTP layer, if there is one; in the dtype of `kv`."""

    @classmethod
    def allocate(
        cls,
        config: ModelConfig,
        max_seq: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        kv_dtype: torch.dtype | None = None,
        mtp: bool = False,
    ) -> "Buffers":
        """Zeros. Stale rows may hold anything later; the first ones must not be garbage.

        `kv_dtype`: of K and V, if not `dtype`.
        """
        linear = config.layer_types.count(LINEAR)
        full = len(config.layer_types) - linear
        hv, dk, dv = config.linear_value_heads, config.linear_key_dim, config.linear_value_dim
        rows = -(-max_seq // SPLIT) * SPLIT

        def zeros(*shape: int, of: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=of, device=device)

        ring = (linear, RING_CHUNKS, CHUNK)
        anchors = zeros(linear, 2, hv, dk, dv, of=torch.float32)
        raw = zeros(linear, RING, config.conv_width)
        keys = zeros(*ring, config.linear_key_heads, dk)
        values = zeros(*ring, hv, dv, of=torch.float32)
        decays = zeros(*ring, hv, of=torch.float32)
        views = tuple(map(LinearState, anchors, raw, keys, values, decays))
        kv = zeros(full, 2, config.num_kv_heads, rows, config.head_dim, of=kv_dtype or dtype)
        hidden = zeros(RING, config.hidden_size)
        mtp_kv = zeros(*kv.shape[1:], of=kv.dtype) if mtp else None
        return cls(anchors, raw, keys, values, decays, kv, hidden, views, mtp_kv)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        held = (self.anchors, self.raw, self.keys, self.values, self.decays, self.kv, self.hidden)
        mtp = 0 if self.mtp_kv is None else self.mtp_kv.nbytes
        return mtp + sum(buffer.nbytes for buffer in held)

    def clear_start(self) -> None:
        """Make the state before position 0: no memory, and zero rows before the first."""
        self.anchors[:, 0] = 0
        self.raw[:, -CHUNK:] = 0

    def state_bytes(self, position: int, kernel: int) -> int:
        """Bytes of a capsule at `position` that do not grow with the tokens.

        One anchor, `kernel` - 1 raw rows, one hidden row, and position % 64 rows of the window.
        """
        window = sum(
            b[:, 0, : position % CHUNK].nbytes for b in (self.keys, self.values, self.decays)
        )
        return (
            self.anchors[:, 0].nbytes
            + self.raw[:, 1:kernel].nbytes
            + self.hidden[0].nbytes
            + window
        )

    def row_bytes(self, start: int, stop: int) -> int:
        """Bytes of a block of the rows [start, stop).

        2 * Lf * Hkv * d values a row; 2 * Hkv * d more for each MTP slot, one less at row 0.
        """
        rows = max(0, stop - start) * self.kv[:, :, :, 0].nbytes
        if self.mtp_kv is None:
            return rows
        return rows + max(0, stop - max(1, start)) * self.mtp_kv[:, :, 0].nbytes
