"""The forward pass of a block of prompt rows: plain products by the library, the rest by kernels.

Reference: `flashrt.engine.model.Model.block`. For bfloat16. Where the rows stand and how many of
them live is read on the device, so one captured graph serves a size at every position below its
bound of keys; larger blocks run without one. A row's bits may depend on the block it is in.
"""

from collections.abc import Iterator, Sequence

import attrs
from torch import Tensor

from flashrt.engine.buffers import CHUNK
from flashrt.engine.forms import BLOCK
from flashrt.engine.kernels.attention import prepare
from flashrt.engine.kernels.blockattention import attend_block
from flashrt.engine.kernels.blocklinear import (
    BlockRows,
    block_linear,
    block_linear_parts,
    takes_block_terms,
)
from flashrt.engine.kernels.chunks import Taps, delta_block
from flashrt.engine.kernels.ffn import block_ffn, ffn_takes_block_terms
from flashrt.engine.kernels.graphs import borders
from flashrt.engine.kernels.norm import add_norm, add_split_norm, gated_norm, split_gated_norm
from flashrt.engine.kernels.step import first_of
from flashrt.engine.kernels.tail import store_tail
from flashrt.engine.kernels.words import Words
from flashrt.engine.mixers import FullMixer, LinearMixer
from flashrt.engine.model import Model

ROWS_MAX = 2048
"""Rows of one pass: where the library's products are fastest, and the memory they need is small."""


@attrs.frozen(eq=False)
class BlockStep:
    """A model's block pass; `ids` and `at` say which rows, and where they stand."""

    model: Model
    words: Words
    """3 + ROWS_MAX of both:"""
    at: Tensor
    """[3] int32: position, its chunk, rows that live."""
    ids: Tensor
    """[ROWS_MAX] int32."""

    @classmethod
    def of(cls, model: Model) -> "BlockStep":
        """At position 0."""
        words = Words(3 + ROWS_MAX, model.device)
        words.send((0, 0, 1))
        return cls(model, words, words.device_words[:3], words.device_words[3:])

    def place(self, ids: Sequence[int], position: int) -> None:
        """Say what the next run processes. The anchor of the position's chunk must be stored."""
        self.words.send((position, position // CHUNK, len(ids), *ids))

    def run(self, count: int, keys: int) -> Tensor:
        """Process `count` rows that see at most `keys` keys; -> final hidden rows [count, h].

        Of more rows than were placed, the last ones are dead: they leave nothing.
        """
        *_, hidden = self.pieces(count, keys)
        assert hidden is not None
        return hidden

    def pieces(self, count: int, keys: int) -> Iterator[Tensor | None]:
        """The same, for a graph; see `graphs.Body`."""
        c = self.model.config
        x = self.model.weights.embed[self.ids[:count]]
        parts: Tensor | None = None
        ends = borders(len(self.model.layers))
        for number, layer in enumerate(self.model.layers):
            if number in ends:
                yield None
            split = takes_block_terms(first_of(layer.mixer), count)
            norm = add_split_norm if split else add_norm
            y = norm(x, parts, layer.input_scale, layer.eps)
            if isinstance(layer.mixer, LinearMixer):
                parts = self._linear(layer.mixer, y)
            else:
                parts = self._full(layer.mixer, y, keys)
            split = ffn_takes_block_terms(layer.mlp, count)
            norm = add_split_norm if split else add_norm
            y = norm(x, parts, layer.post_scale, layer.eps)
            parts = block_ffn(y, layer.mlp, self.at)
        hidden = add_norm(x, parts, self.model.final_scale, c.rms_eps)
        store_tail(self.model.buffers.hidden, self.at, hidden)
        yield hidden

    def _linear(self, mixer: LinearMixer, y: BlockRows) -> Tensor:
        c, w = self.model.config, mixer.weights
        rows = block_linear(y, w.in_proj)
        taps = Taps(mixer.taps, w.dt_bias, mixer.rate)
        o = delta_block(mixer.state, self.at, rows, taps)
        z = rows[:, c.conv_width : c.conv_width + c.value_width].unflatten(1, o.shape[1:])
        split = takes_block_terms(w.out_proj, len(rows)) and c.linear_value_dim % BLOCK == 0
        normed = (split_gated_norm if split else gated_norm)(o, z, mixer.norm, c.rms_eps)
        return block_linear_parts(normed, w.out_proj)

    def _full(self, mixer: FullMixer, y: BlockRows, keys: int) -> Tensor:
        c = self.model.config
        rows = block_linear(y, mixer.weights.qkv_proj)
        scales, tables = (mixer.q_scale, mixer.k_scale), (mixer.cos, mixer.sin)
        q = prepare(rows, mixer.kv, self.at, scales, tables, c.num_heads, c.rms_eps)
        o = attend_block(q, mixer.kv, self.at, keys, rows)
        return block_linear_parts(o.flatten(1), mixer.weights.o_proj)
