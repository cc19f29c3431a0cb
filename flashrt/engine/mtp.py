"""The MTP layer: one more decoder layer, which drafts the token after the next one.

Slot p pairs the final hidden row of position p with the token of p + 1, at rotary position p:

    x   = fc [rms(embed[token p+1]) ; rms(hidden p)]
    m_p = rms(layer(x))                 head(m_p) are the draft's logits for p + 2

A longer draft feeds m_p for the hidden row of p + 1. The K and V of a slot depend on its own pair
only, not on the slots before it; so filling the cache costs no attention.

The cache is a function of the processed tokens and of the calls that processed them. A prefill
block fills the slots that its tokens complete, the first of them with the hidden row that was there
before it; slots of decoded tokens are filled later, row-invariantly, hence in groups of any size.
What drafting writes is never counted as filled.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import torch
from torch import Tensor

from flashrt.engine import ops
from flashrt.engine.buffers import RING
from flashrt.engine.kernels import mtp_rows_for
from flashrt.engine.linear import GROUP
from flashrt.engine.matrix import Matrix, cut
from flashrt.engine.mixers import FullMixer
from flashrt.engine.model import Layer, Model, layer_of
from flashrt.engine.passes import BlockPass, Pass, RowsPass, ring_index
from flashrt.engine.weights import FullAttentionWeights, MtpWeights

LAG_MAX = 64
"""Slots that may wait to be filled: their hidden rows must still be in the ring."""

Choose = Callable[[Tensor, Sequence[int]], int]
"""The id that logits [V] float32 propose behind the ids drafted so far. Raises StopIteration where
none is proposed."""


def likeliest(logits: Tensor, drafted: Sequence[int]) -> int:
    """Proposes the best id: what a choice without noise, limits or penalties would be."""
    return int(logits.argmax())


@attrs.frozen(eq=False)
class MtpLayer:
    """The forward pass over its static K and V."""

    model: Model
    weights: MtpWeights
    layer: Layer
    mixer: FullMixer
    queries: Matrix
    """[H*2*d, h]: the rows of the projection that make queries and gates."""
    keys_values: Matrix
    """[2*Hkv*d, h]: its other rows. They have a product to themselves, so that a slot which is only
    filled has the bits of one that drafts."""
    scales: tuple[Tensor, Tensor, Tensor]
    """[h] float32: of the embedding, of the hidden row, of the result."""

    @classmethod
    def of(cls, model: Model, weights: MtpWeights, kv: Tensor) -> "MtpLayer":
        """With what is derived from the weights once. kv [2, Hkv, rows, d]."""
        assert isinstance(weights.layer.mixer, FullAttentionWeights)
        mixer = FullMixer.of(model.config, weights.layer.mixer, kv, model.tables)
        norms = weights.pre_fc_norm_embedding, weights.pre_fc_norm_hidden, weights.norm
        embedding, hidden, last = (1 + norm.float() for norm in norms)
        layer = layer_of(model.config, weights.layer, mixer)
        projection, rows = mixer.weights.qkv_proj, 2 * model.config.num_heads * kv.shape[-1]
        parts = cut(projection, 0, rows), cut(projection, rows, len(projection))
        return cls(model, weights, layer, mixer, *parts, (embedding, hidden, last))

    def fill(self, ids: Tensor, hidden: Tensor, go: Pass) -> None:
        """Write the K and V of slots go.position .. from ids [T] and hidden rows [T, h]."""
        self._store(self.layer.normed(self._paired(ids, hidden, go)), go)

    def hidden(self, start: int, count: int) -> Tensor:
        """[count, h]: final hidden rows from position `start` on, which must be in the ring."""
        ring = self.model.buffers.hidden
        return ring[ring_index(start, start + count, ring.device)]

    def tensor(self, ids: Sequence[int]) -> Tensor:
        """Ids where the layer's weights are."""
        return torch.tensor(ids, device=self.model.device)

    def forward(self, ids: Tensor, hidden: Tensor, go: Pass) -> Tensor:
        """Write K and V as `fill` does, and go through the whole layer -> m [T, h]."""
        x = self._paired(ids, hidden, go)
        y = self.layer.normed(x)
        self._store(y, go)
        mixed = self.mixer.answer(go.linear(y, self.queries), go)
        x = self.layer.finish(x + mixed, go)
        return ops.rms_norm(x, self.scales[2], self.layer.eps)[: go.count]

    def _paired(self, ids: Tensor, hidden: Tensor, go: Pass) -> Tensor:
        """[T, 2h] through fc -> [T, h], padded as the pass wants it."""
        ids, hidden = go.pad(ids), go.pad(hidden)
        e = ops.rms_norm(self.model.weights.embed[ids], self.scales[0], self.layer.eps)
        g = ops.rms_norm(hidden, self.scales[1], self.layer.eps)
        return go.linear(torch.cat((e, g), dim=-1), self.weights.fc)

    def _store(self, y: Tensor, go: Pass) -> None:
        k, v = go.linear(y, self.keys_values).chunk(2, dim=-1)
        self.mixer.store(k, v, go)


class MtpRows(Protocol):
    """What the layer does for an engine. Row by row, the bits of a slot depend on nothing but its
    own pair; in a block they may depend on where it begins and ends."""

    def block(self, ids: Sequence[int], hidden: Tensor, slot: int) -> None:
        """Fill the slots from `slot` on together, from ids and hidden rows [T, h]."""
        ...

    def fill(self, ids: Sequence[int], slot: int) -> None:
        """Fill the slots from `slot` on, at most GROUP; hidden rows are in the ring."""
        ...

    def draft(
        self, ids: Sequence[int], slot: int, pending: int, count: int, choose: Choose
    ) -> tuple[int, ...]:
        """Fill with ids as `fill` does, if there are any; then draft at most `count` ids behind the
        pending one, which the slot behind them waits for."""
        ...


@attrs.frozen(eq=False)
class TorchMtpRows:
    """By the layer's own forward pass."""

    layer: MtpLayer

    def block(self, ids: Sequence[int], hidden: Tensor, slot: int) -> None:
        """In one pass."""
        self.layer.fill(self.layer.tensor(ids), hidden, BlockPass(slot, len(ids)))

    def fill(self, ids: Sequence[int], slot: int) -> None:
        """In one group."""
        hidden, go = self.layer.hidden(slot, len(ids)), RowsPass(slot, len(ids), anchor=0)
        self.layer.fill(self.layer.tensor(ids), hidden, go)

    def draft(
        self, ids: Sequence[int], slot: int, pending: int, count: int, choose: Choose
    ) -> tuple[int, ...]:
        """One by one."""
        if ids:
            self.fill(ids, slot)
        layer, first, chosen = self.layer, slot + len(ids), [pending]
        hidden = layer.hidden(first, 1)
        for at in range(first, first + count):
            hidden = layer.forward(layer.tensor(chosen[-1:]), hidden, RowsPass(at, 1, anchor=0))
            try:
                chosen.append(choose(layer.model.head(hidden)[0], chosen[1:]))
            except StopIteration:
                break
        return tuple(chosen[1:])


@attrs.define(eq=False)
class MtpState:
    """How far the cache is filled, and the ids to fill it further with.

    Before the next block, before a capsule and before a draft it is filled up to position - 1.
    """

    layer: MtpLayer
    rows: MtpRows
    filled: int = 0
    """Slots [0, filled) hold what they hold for good."""
    recent: list[int] = attrs.field(factory=lambda: [0] * RING)
    """The newest processed ids, by position modulo RING."""

    @classmethod
    def of(cls, model: Model) -> "MtpState | None":
        """None where the checkpoint has no MTP layer."""
        if model.weights.mtp is None or model.buffers.mtp_kv is None:
            return None
        layer = MtpLayer.of(model, model.weights.mtp, model.buffers.mtp_kv)
        return cls(layer, mtp_rows_for(layer))

    def note(self, ids: Sequence[int], position: int) -> None:
        """These ids have been processed at `position`."""
        start = max(0, len(ids) - RING)
        for i, id_ in enumerate(ids[start:], position + start):
            self.recent[i % RING] = id_

    def make_room(self, position: int, count: int) -> None:
        """Fill, if `count` rows more would let too many slots wait."""
        if position + count - self.filled > LAG_MAX:
            self.settle(position)

    def settle(self, position: int) -> None:
        """Fill every slot whose token is processed: those below position - 1."""
        while self.filled < position - 1:
            ids = self._waiting(position)
            self.rows.fill(ids, self.filled)
            self.filled += len(ids)

    def before(self, position: int) -> Tensor:
        """[0 or 1, h]: a copy of the hidden row that waits for the first id of a block."""
        slot = (position - 1) % RING
        return self.layer.model.buffers.hidden[slot : slot + min(position, 1)].clone()

    def block(self, ids: Sequence[int], position: int, before: Tensor, hidden: Tensor) -> None:
        """Fill the slots that a block's ids complete, with its hidden rows [T, h]."""
        pairs = torch.cat((before, hidden[:-1]))
        start = position - len(before)
        if len(pairs):
            self.rows.block(ids[len(ids) - len(pairs) :], pairs, start)
        self.filled = start + len(pairs)

    def draft(self, pending: int, position: int, count: int, choose: Choose) -> tuple[int, ...]:
        """At most `count` ids behind the pending one; fewer where `choose` stops."""
        if position - 1 - self.filled > GROUP:
            self.settle(position)
        ids, slot = self._waiting(position), self.filled
        self.filled += len(ids)
        return self.rows.draft(ids, slot, pending, count, choose)

    def _waiting(self, position: int) -> list[int]:
        """The ids of the next slots to fill, at most a group."""
        end = min(position, self.filled + 1 + GROUP)
        return [self.recent[i % RING] for i in range(self.filled + 1, end)]
