"""The forward pass of few rows by kernels alone.

Reference: `flashrt.engine.model.Model.rows`, `logits`. Where the rows stand is read on the device,
so one captured graph serves a number of rows at every position below its bound of keys.
"""

from collections.abc import Iterator, Sequence

import attrs
from torch import Tensor

from flashrt.engine.forms import BLOCK
from flashrt.engine.kernels.attention import attend_rows, prepare
from flashrt.engine.kernels.delta import delta_rows
from flashrt.engine.kernels.ffn import ffn_takes_terms, rows_ffn
from flashrt.engine.kernels.graphs import borders
from flashrt.engine.kernels.linear import (
    head_linear,
    rows_linear,
    rows_linear_parts,
    takes_terms,
)
from flashrt.engine.kernels.norm import (
    add_half_norm,
    add_norm,
    gated_norm,
    split_gated_norm,
    store_in_ring,
)
from flashrt.engine.kernels.plain import ROWS_MAX, Rows
from flashrt.engine.kernels.streams import Streams, first_of, out_of, streams_of
from flashrt.engine.kernels.words import Words
from flashrt.engine.mixers import FullMixer, LinearMixer
from flashrt.engine.model import Layer, Model


@attrs.frozen(eq=False)
class RowsStep:
    """A model's few-row pass; `ids` and `at` say which rows, and where they stand."""

    model: Model
    words: Words
    """3 + ROWS_MAX of both:"""
    at: Tensor
    """[3] int32: position, newest chunk whose anchor is stored, rows that live."""
    ids: Tensor
    """[ROWS_MAX] int32."""
    streams: Streams
    """Layers whose second half is one launch."""

    @classmethod
    def of(cls, model: Model) -> "RowsStep":
        """At position 0."""
        words = Words(3 + ROWS_MAX, model.device)
        streams = streams_of(model.layers, model.device)
        return cls(model, words, words.device_words[:3], words.device_words[3:], streams)

    def place(self, ids: Sequence[int], position: int, anchor: int) -> None:
        """Say what the next run processes."""
        self.words.send((position, anchor, len(ids), *ids))

    def place_ahead(self, id_: Tensor, position: int, anchor: int) -> None:
        """The same for one row with the id [1] int64 that the device holds."""
        self.words.send((position, anchor, 1))
        self.ids[:1].copy_(id_)

    def run(self, count: int, keys: int) -> Tensor:
        """Process `count` rows that see at most `keys` keys; -> final hidden rows [count, h].

        Of more rows than were placed, the last ones are dead: they leave nothing.
        """
        *_, hidden = self.pieces(count, keys)
        assert hidden is not None
        return hidden

    def pieces(self, count: int, keys: int) -> Iterator[Tensor | None]:
        """The same, for a graph; see `graphs.Body`."""
        x = self.model.weights.embed[self.ids[:count]]
        layers = self.model.layers
        ends = borders(len(layers))
        self.streams.start()
        parts: Tensor | None = None
        rows: Tensor | None = None
        for number, layer in enumerate(layers):
            if number in ends:
                yield None
            if rows is None:
                split = takes_terms(first_of(layer.mixer))
                y = add_half_norm(x, parts, layer.input_scale, layer.eps, split=split)
                rows = rows_linear(y, first_of(layer.mixer))
            if isinstance(layer.mixer, LinearMixer):
                mixed = self._linear(layer.mixer, rows)
            else:
                mixed = self._full(layer.mixer, rows, keys)
            if self.streams.take(number):
                rows, parts = self.streams.run(number, x, mixed), None
            else:
                rows, parts = None, self._finished(x, layer, mixed)
        hidden = add_norm(x, parts, self.model.final_scale, self.model.config.rms_eps)
        store_in_ring(self.model.buffers.hidden, self.at, hidden)
        yield hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[M, V] float32 of hidden rows."""
        return head_linear(hidden, self.model.weights.lm_head)

    def _linear(self, mixer: LinearMixer, rows: Tensor) -> Rows:
        """Of projected rows what a layer's output projection is to multiply."""
        c, w = self.model.config, mixer.weights
        o = delta_rows(mixer.state, self.at, rows, mixer.taps, w.dt_bias, mixer.rate)
        z = rows[:, c.conv_width : c.conv_width + c.value_width].unflatten(1, o.shape[1:])
        split = takes_terms(w.out_proj) and c.linear_value_dim % BLOCK == 0
        return (split_gated_norm if split else gated_norm)(o, z, mixer.norm, c.rms_eps)

    def _full(self, mixer: FullMixer, rows: Tensor, keys: int) -> Rows:
        c = self.model.config
        scales, tables = (mixer.q_scale, mixer.k_scale), (mixer.cos, mixer.sin)
        q = prepare(rows, mixer.kv, self.at, scales, tables, c.num_heads, c.rms_eps)
        o = attend_rows(q, mixer.kv, self.at, keys, rows)
        return o.flatten(1)

    def _finished(self, x: Tensor, layer: Layer, mixed: Rows) -> Tensor:
        """x += the output projection; -> parts of the feed-forward half, still to be added."""
        parts = rows_linear_parts(mixed, out_of(layer.mixer))
        split = ffn_takes_terms(layer.mlp)
        y = add_half_norm(x, parts, layer.post_scale, layer.eps, split=split)
        return rows_ffn(y, layer.mlp, self.at)
