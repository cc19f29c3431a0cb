"""The MTP layer by kernels: a graph that fills slots, and a graph per bound that drafts an id.

Reference: `flashrt.engine.mtp.MtpLayer`. A draft's graph leaves the next one ready on the device:
its id, its hidden row, its slot. So ids that need no look by the host come without waiting for it.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import torch
from torch import Tensor

from flashrt.engine.buffers import RING
from flashrt.engine.kernels.attention import attend_rows, prepare
from flashrt.engine.kernels.blocklinear import block_linear
from flashrt.engine.kernels.ffn import ffn_takes_terms, rows_ffn
from flashrt.engine.kernels.graphs import Graph, capturing, in_one
from flashrt.engine.kernels.linear import rows_linear, rows_linear_parts
from flashrt.engine.kernels.model import BLOCKS, KernelModel
from flashrt.engine.kernels.narrowhead import NarrowHead, WholeHead
from flashrt.engine.kernels.norm import HalfNorm, add_half_norm, add_norm
from flashrt.engine.kernels.words import Words
from flashrt.engine.linear import GROUP
from flashrt.engine.mtp import Choose, MtpLayer, likeliest
from flashrt.engine.passes import BlockPass

DRAFTS_MAX = 64
"""Drafted ids that the device remembers."""


@attrs.frozen(eq=False)
class MtpStep:
    """The layer's passes; `words` says which slots, and with which ids.

    Two places, each a slot, an anchor that is not read, and how many rows live: where it drafts,
    and where it fills; then the id that it drafts behind, and GROUP ids to fill with.
    """

    layer: MtpLayer
    words: Words
    head: NarrowHead | WholeHead
    row: Tensor
    """[1, h]: the hidden row of the next draft."""
    drafted: Tensor
    """[DRAFTS_MAX] int32: the newest drafted ids, the last one last."""

    @classmethod
    def of(cls, layer: MtpLayer) -> "MtpStep":
        """At slot 0."""
        model = layer.model
        assert isinstance(model, KernelModel)
        row = torch.zeros_like(model.buffers.hidden[:1])
        drafted = torch.zeros(DRAFTS_MAX, dtype=torch.int32, device=model.device)
        words = Words(7 + GROUP, model.device)
        return cls(layer, words, model.drafting_head, row, drafted)

    def place(self, ids: Sequence[int], slot: int, pending: int = 0, draft_slot: int = 0) -> None:
        """Say which slots the next filling fills, and where drafting begins then."""
        self.words.send((draft_slot, 0, 1, slot, 0, len(ids), pending, *ids))

    def fill(self) -> Tensor:
        """Store K and V of the placed slots, with hidden rows from the ring; -> the row that
        drafting begins with."""
        words, ring = self.words.device_words, self.layer.model.buffers.hidden
        slots = words[3] + torch.arange(GROUP, device=ring.device)
        self._stored(self._paired(ring[slots % RING], words[7:]), words[3:6])
        return self.row.copy_(ring[words[:1] % RING])

    def draft(self, keys: int) -> Tensor:
        """Draft behind the placed id; -> logits [1, V] float32. Leaves the next draft ready."""
        layer, words = self.layer, self.words.device_words
        x = self._paired(self.row, words[6:7])
        rows, q = self._stored(x, words[:3])
        o = attend_rows(q, layer.mixer.kv, words[:3], keys, rows)
        parts = rows_linear_parts(o.flatten(1), layer.mixer.weights.o_proj)
        split = ffn_takes_terms(layer.layer.mlp)
        y = add_half_norm(x, parts, layer.layer.post_scale, layer.layer.eps, split=split)
        parts = rows_ffn(y, layer.layer.mlp, words[:3])
        self.row.copy_(add_norm(x, parts, layer.scales[2], layer.layer.eps))
        logits = self.head.logits(self.row)
        best = logits.argmax(-1)
        self.drafted.copy_(torch.cat((self.drafted[1:], best.int())))
        words[6:7].copy_(best)
        words[:1].add_(1)
        return logits

    def _paired(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """[T, 2h] through fc -> [T, h]."""
        layer, embed = self.layer, self.layer.model.weights.embed
        e = add_norm(embed[ids], None, layer.scales[0], layer.layer.eps)
        g = add_norm(hidden, None, layer.scales[1], layer.layer.eps)
        return rows_linear(torch.cat((e, g), dim=-1), layer.weights.fc)

    def _stored(self, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """The projection of x [T, h], and its queries; keys and values go to their slots."""
        layer, mixer, c = self.layer, self.layer.mixer, self.layer.model.config
        y: HalfNorm = add_half_norm(x, None, layer.layer.input_scale, layer.layer.eps)
        rows = rows_linear(y, mixer.weights.qkv_proj)
        scales, tables = (mixer.q_scale, mixer.k_scale), (mixer.cos, mixer.sin)
        return rows, prepare(rows, mixer.kv, at, scales, tables, c.num_heads, c.rms_eps)


@attrs.frozen(eq=False)
class MtpBlockStep:
    """Fills the slots of a prompt block: products by the library, the rest by kernels.

    Reference: `flashrt.engine.mtp.MtpLayer.fill` of a block.
    """

    layer: MtpLayer
    words: Words
    """A slot, an anchor that is not read, how many rows live; then ids."""
    hidden: Tensor
    """[rows, h]."""

    @classmethod
    def of(cls, layer: MtpLayer, rows: int) -> "MtpBlockStep":
        """At slot 0, for at most `rows`."""
        ring = layer.model.buffers.hidden
        words = Words(3 + rows, ring.device)
        words.send((0, 0, 1))
        return cls(layer, words, ring.new_zeros(rows, ring.shape[1]))

    def place(self, ids: Sequence[int], hidden: Tensor, slot: int) -> None:
        """Say what the next run fills."""
        self.words.send((slot, 0, len(ids), *ids))
        self.hidden[: len(hidden)] = hidden

    def run(self, count: int) -> Tensor:
        """Fill `count` slots; of more than were placed the last ones are dead."""
        layer, mixer, c = self.layer, self.layer.mixer, self.layer.model.config
        words, eps = self.words.device_words, layer.layer.eps
        e = add_norm(layer.model.weights.embed[words[3 : 3 + count]], None, layer.scales[0], eps)
        g = add_norm(self.hidden[:count], None, layer.scales[1], eps)
        x = block_linear(torch.cat((e, g), dim=-1), layer.weights.fc)
        rows = block_linear(add_norm(x, None, layer.layer.input_scale, eps), layer.keys_values)
        scales, tables = (mixer.q_scale, mixer.k_scale), (mixer.cos, mixer.sin)
        prepare(rows, mixer.kv, words[:3], scales, tables, heads=0, eps=c.rms_eps)
        return x


@attrs.frozen(eq=False)
class KernelMtpRows:
    """`flashrt.engine.mtp.MtpRows` by captured graphs."""

    step: MtpStep
    block_step: MtpBlockStep
    blocks: Mapping[int, Graph]
    """By their number of rows; longer blocks go by torch."""
    filling: Graph
    drafting: Mapping[int, Graph]
    """By their bound of keys."""

    @classmethod
    def of(cls, layer: MtpLayer) -> "KernelMtpRows":
        """Captures; the layer's K and V are zeros afterwards."""
        model = layer.model
        assert isinstance(model, KernelModel)
        step = MtpStep.of(layer)
        sizes = BLOCKS if model.by_blocks else ()
        block_step = MtpBlockStep.of(layer, max(sizes, default=1))
        with capturing() as pool:
            blocks = {
                rows: Graph.capture(in_one(partial(block_step.run, rows)), pool)
                for rows in reversed(sizes)
            }
            filling = Graph.capture(in_one(step.fill), pool)
            drafting = {
                keys: Graph.capture(in_one(partial(step.draft, keys)), pool)
                for keys in model.bounds
            }
        layer.mixer.kv.zero_()
        return cls(step, block_step, dict(reversed(blocks.items())), filling, drafting)

    def block(self, ids: Sequence[int], hidden: Tensor, slot: int) -> None:
        """In one pass."""
        graph = next((graph for rows, graph in self.blocks.items() if len(ids) <= rows), None)
        if graph is None:
            layer = self.step.layer
            layer.fill(layer.tensor(ids), hidden, BlockPass(slot, len(ids)))
        else:
            self.block_step.place(ids, hidden, slot)
            graph.replay()

    def fill(self, ids: Sequence[int], slot: int) -> None:
        """In one group."""
        self.step.place(ids, slot)
        self.filling.replay()

    def draft(
        self, ids: Sequence[int], slot: int, pending: int, count: int, choose: Choose
    ) -> tuple[int, ...]:
        """One by one; the likeliest ids without the host between them."""
        first = slot + len(ids)
        self.step.place(ids, slot, pending, first)
        self.filling.replay()
        graph = next(graph for keys, graph in self.drafting.items() if first + count <= keys)
        if choose is likeliest:
            for _ in range(count):
                graph.replay()
            return tuple(self.step.drafted[-count:].tolist())
        chosen: list[int] = []
        while len(chosen) < count:
            try:
                chosen.append(choose(graph.replay()[0], chosen))
            except StopIteration:
                break
            self.step.words.device_words[6] = chosen[-1]
        return tuple(chosen)
