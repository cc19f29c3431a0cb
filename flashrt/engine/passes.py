"""The two ways of going through the model, behind one seam for the layers.

A layer is written once. What depends on the number of rows (the products, the recurrence, the
attention) it asks of a pass; kernels of a device take a pass's place.
"""

from typing import Protocol

import attrs
import torch
from torch import Tensor

from flashrt.engine.attention import attend_block, attend_rows
from flashrt.engine.buffers import RING, LinearState
from flashrt.engine.delta import DeltaInputs, delta_block, delta_rows
from flashrt.engine.linear import GROUP, block_linear, pad_rows, rows_linear
from flashrt.engine.matrix import Matrix


class Pass(Protocol):
    """New rows position .. position + count - 1; tensors may have dead rows behind them."""

    @property
    def position(self) -> int:
        """Where the first row stands."""
        ...

    @property
    def count(self) -> int:
        """Rows that live."""
        ...

    def pad(self, ids: Tensor) -> Tensor:
        """ids [count] with as many dead rows behind as the pass computes."""
        ...

    def linear(self, x: Tensor, weight: Matrix) -> Tensor:
        """x [T, K] @ weight [N, K]^T -> [T, N]."""
        ...

    def delta(self, state: LinearState, rows: DeltaInputs) -> Tensor:
        """The gated delta rule -> [T, Hv, dv] float32."""
        ...

    def attend(self, q: Tensor, kv: Tensor) -> Tensor:
        """Causal attention of q [T, H, d], the new rows being in kv already -> [T, H, d]."""
        ...


@attrs.frozen
class RowsPass:
    """At most GROUP rows, each with the bits it would have alone."""

    position: int
    count: int
    anchor: int
    """The newest chunk whose anchor is stored."""

    def pad(self, ids: Tensor) -> Tensor:
        """Always GROUP rows: a fixed shape is what makes a row's bits its own."""
        return pad_rows(ids, GROUP)

    def linear(self, x: Tensor, weight: Matrix) -> Tensor:
        """Row-invariant."""
        return rows_linear(x, weight)

    def delta(self, state: LinearState, rows: DeltaInputs) -> Tensor:
        """Row by row; stores no anchor."""
        return delta_rows(state, self.anchor, self.position, self.count, rows)

    def attend(self, q: Tensor, kv: Tensor) -> Tensor:
        """Row by row."""
        return attend_rows(q, kv, self.position, self.count)


@attrs.frozen
class BlockPass:
    """A block of any size together; bits may depend on where it begins and ends."""

    position: int
    count: int

    def pad(self, ids: Tensor) -> Tensor:
        """As it is."""
        return ids

    def linear(self, x: Tensor, weight: Matrix) -> Tensor:
        """One product."""
        return block_linear(x, weight)

    def delta(self, state: LinearState, rows: DeltaInputs) -> Tensor:
        """In chunks; stores the anchors it passes."""
        return delta_block(state, self.position, rows)

    def attend(self, q: Tensor, kv: Tensor) -> Tensor:
        """All rows of a slice at once."""
        return attend_block(q, kv, self.position)


def store_in_ring(ring: Tensor, position: int, rows: Tensor) -> None:
    """Keep the newest of `rows`, which begin at `position`, in ring [RING, ...]."""
    end = position + len(rows)
    start = max(position, end - RING)
    ring[ring_index(start, end, ring.device)] = rows[start - position :]


def ring_index(start: int, end: int, device: torch.device) -> Tensor:
    """Where positions [start, end) lie in a ring; negative ones are the rows before the first."""
    return torch.arange(start, end, device=device) % RING
