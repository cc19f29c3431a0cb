"""What a pass through the model holds beside weights and state, at worst: pure arithmetic.

Follows the torch path (`model.Model`), which every kernel that takes its place undercuts; the tests
count what that path really holds. Each term below is one or more tensors that live at once.
"""

import attrs
import torch

from flashrt.engine.attention import BLOCK_ROWS, MASK_MAX, SPLIT
from flashrt.engine.buffers import CHUNK
from flashrt.engine.config import LINEAR, ModelConfig
from flashrt.engine.delta import CHUNKS_AT_ONCE
from flashrt.engine.linear import HEAD_BLOCK, ROWS_MAX
from flashrt.engine.matrix import SLICE_BYTES

WIDE = torch.float32.itemsize


@attrs.frozen
class Activations:
    """Of one shape; `size`: bytes of a number of the engine's dtype."""

    config: ModelConfig
    size: int
    packed: bool = False
    """Whether matrices are made dense slice by slice."""
    converted: bool = False
    """Whether K and V are kept in another dtype, which a block converts head by head."""

    def step_bytes(self, rows: int, window: int) -> int:
        """At most, in a step of any kind: a block of so many rows, or a verify, and its logits."""
        step = max(self.block_bytes(rows, window), self._few_rows(window))
        return step + self.logits_bytes() + (SLICE_BYTES if self.packed else 0)

    def block_bytes(self, rows: int, window: int) -> int:
        """At most, while `rows` tokens that end at `window` are processed together."""
        c = self.config
        # The row as it came, normed, and as it leaves; and the sum that is under way.
        around = 4 * rows * c.hidden_size * self.size
        norm = 3 * rows * c.hidden_size * WIDE
        phases = [norm, self._attention(rows, window), self._feed_forward(rows)]
        if LINEAR in c.layer_types:
            phases.append(self._linear(rows))
        if c.mtp_layers:
            phases.append(self._mtp(rows))
        return around + max(phases)

    def attention_scores_bytes(self, window: int) -> int:
        """One slice of rows against all keys, if the library has no kernel that spares scores."""
        c = self.config
        row = c.num_heads // c.num_kv_heads * window
        pairs = min(BLOCK_ROWS * row, max(MASK_MAX, row))
        return pairs * (2 + self.size + c.num_kv_heads * (WIDE + self.size))

    def logits_bytes(self, rows: int = ROWS_MAX) -> int:
        """Of the output head behind `rows` rows, and of choosing from one of them."""
        c = self.config
        logits = 2 * rows * c.vocab_size * WIDE
        widened = HEAD_BLOCK * c.hidden_size * WIDE
        sorting = 8 * c.vocab_size * WIDE
        return logits + max(widened, sorting)

    def _few_rows(self, window: int) -> int:
        """As a block of so few rows, and what attention keeps of each split of the keys."""
        c = self.config
        splits = -(-window // SPLIT)
        kept = 2 * ROWS_MAX * c.num_heads * c.head_dim * splits * WIDE
        return self.block_bytes(ROWS_MAX, window) + kept

    # -- phases ------------------------------------------------------------------------------------

    def _linear(self, rows: int) -> int:
        """A gated delta rule layer, from its projection to the one out of it."""
        c = self.config
        projected = rows * (c.conv_width + c.value_width + 2 * c.linear_value_heads) * self.size
        convolving = rows * c.conv_width * (2 * self.size + 4 * WIDE)
        convolved = rows * c.conv_width * self.size
        out = 2 * rows * c.value_width * WIDE
        norming = rows * c.value_width * (4 * WIDE + 2 * self.size)
        return projected + max(convolving, convolved + out + max(self._chunks(rows), norming))

    def _chunks(self, rows: int) -> int:
        """The chunks of a block that are prepared together."""
        c = self.config
        chunks = min(CHUNKS_AT_ONCE, -(-rows // CHUNK) + 1)
        padded = chunks * CHUNK
        heads, keys, values = c.linear_value_heads, c.linear_key_dim, c.linear_value_dim
        of_keys = padded * c.linear_key_heads * keys
        as_laid_out = 3 * of_keys + padded * heads * values
        repeated = 2 * padded * heads * keys
        squares = 5 * padded * heads * CHUNK
        solved = padded * heads * (2 * (keys + values) + 5 * values)
        anchors = (chunks + 2) * heads * keys * values
        return (as_laid_out + repeated + squares + solved + anchors) * WIDE

    def _attention(self, rows: int, window: int) -> int:
        """A gated attention layer."""
        c = self.config
        wide = rows * c.num_heads * c.head_dim
        projected = 2 * rows * c.head_dim * (c.num_heads + c.num_kv_heads) * self.size
        turning = wide * (4 * WIDE + self.size)
        attending = 3 * wide * self.size + self.attention_scores_bytes(window)
        if self.converted:
            head = 3 * wide // c.num_kv_heads + 2 * window * c.head_dim
            attending += head * self.size
        gating = wide * (3 * WIDE + 2 * self.size)
        return projected + max(turning, attending, gating)

    def _feed_forward(self, rows: int) -> int:
        """Dense, or every expert's rows one after the other; kernels keep each answer apart."""
        c = self.config
        if c.moe is None:
            return self._mlp(rows, c.intermediate_size)
        inner = max(c.moe.intermediate_size, c.moe.shared_intermediate_size)
        scores = 6 * rows * (c.moe.experts + 1) * WIDE
        total = 3 * rows * c.hidden_size * WIDE
        in_turn = total + self._mlp(rows, inner)
        slots = c.moe.experts_per_row + 1
        apart = rows * slots * (c.hidden_size * WIDE + inner * self.size)
        return scores + max(in_turn, apart)

    def _mlp(self, rows: int, inner: int) -> int:
        out = rows * self.config.hidden_size * self.size
        return out + rows * inner * (2 * self.size + 4 * WIDE)

    def _mtp(self, rows: int) -> int:
        """Filling the MTP layer's cache: the two inputs, side by side, through one product."""
        return rows * self.config.hidden_size * (6 * self.size + 3 * WIDE)
