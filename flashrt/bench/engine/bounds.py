"""The least that work must take: bytes that must be read, and operations that must be done.

Pure arithmetic over a model's shape. Norms, gates, the convolution and the recurrence are left out
of the operations: they are few beside the products.
"""

import math

import attrs
import torch

from flashrt.bench.engine.rates import Rates
from flashrt.engine.config import FULL, LINEAR, ModelConfig
from flashrt.engine.forms import tensors
from flashrt.engine.headers import MTP_PREFIX
from flashrt.engine.tensor_plan import EMBEDDING, HEAD, Layout, allocate_all

ROUTED = "mlp.experts."
MTP_FILL = ("mtp.fc.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight")
"""What of the MTP layer a prompt goes through: its K and V are filled, nothing is drafted."""


@attrs.frozen
class Counted:
    """One tensor of a checkpoint."""

    nbytes: int
    """As it is read: of a quantized matrix packed, with its scales."""
    numbers: int


@attrs.frozen
class Bounds:
    """Of one shape and dtype, on a machine of these rates. Milliseconds."""

    config: ModelConfig
    dtype: torch.dtype
    rates: Rates
    layout: Layout | None = None
    """What is quantized; None: nothing, and the MTP layer is there if the config has one."""
    kv_dtype: torch.dtype | None = None
    """Of keys and values, if not the dtype."""
    head_copy_bytes: int = 0
    """Of the 8-bit copy of the head that drafts, and of a bfloat16 one ids, are found by; none: by
    the head itself."""
    _tensors: dict[str, Counted] = attrs.field(init=False, repr=False)

    @_tensors.default
    def _counted(self) -> dict[str, Counted]:
        layout = self.layout or Layout(mtp=self.config.mtp_layers > 0)
        made = allocate_all(self.config, "meta", self.dtype, layout)
        plain = {name: Counted(slot.nbytes, slot.numel()) for name, slot in made.slots.items()}
        packed = {
            name: Counted(sum(t.nbytes for t in tensors(form)), len(form.weight) * form.columns)
            for name, form in made.forms.items()
        }
        return plain | packed

    # -- in milliseconds ---------------------------------------------------------------------------

    def step_ms(self, rows: int, context: int, drafts: int = 0) -> float:
        """A step of `rows` rows, after `drafts` passes through the MTP layer."""
        size = self.step_bytes(rows, context) + drafts * self.draft_bytes(context)
        return size / self.rates.read_bytes * 1e3

    def prompt_ms(self, tokens: int, position: int = 0) -> float:
        """So many tokens behind `position`, and the first id: by products, or by reading all
        weights and the state once, whichever takes longer."""
        products = self.prompt_flops(tokens, position) / self.rates.flops
        reading = self.step_bytes(tokens, position) / self.rates.read_bytes
        return max(products, reading) * 1e3

    def copy_ms(self, size: int) -> float:
        """A copy of so many bytes on the device."""
        return size / self.rates.copy_bytes * 1e3

    # -- what must be read and done ----------------------------------------------------------------

    def step_bytes(self, rows: int, context: int) -> int:
        """Every weight that `rows` rows read, the state of the linear layers, K and V."""
        c = self.config
        heads = c.linear_value_heads * c.linear_key_dim * c.linear_value_dim
        state = c.layer_types.count(LINEAR) * heads * torch.float32.itemsize
        return self.weight_bytes(rows) + state + c.layer_types.count(FULL) * self._kv_bytes(context)

    def draft_bytes(self, context: int) -> int:
        """One pass of one row through the MTP layer and the head."""
        layer = sum(self._read(name, 1) for name in self._tensors if name.startswith(MTP_PREFIX))
        return layer + (self.head_copy_bytes or self._head.nbytes) + self._kv_bytes(context)

    def weight_bytes(self, rows: int) -> int:
        """Of the body and the head; the embedding is looked up, not read."""
        copied = self.head_copy_bytes and self.dtype == torch.bfloat16
        head = self.head_copy_bytes if copied else self._head.nbytes
        return sum(self._read(name, rows) for name in self._body) + head

    def prompt_flops(self, tokens: int, position: int = 0) -> int:
        """Two for each weight and token, and causal attention: four for each pair and dim."""
        c = self.config
        weights = sum(self._used(name) for name in self._body)
        weights += sum(self._used(name) for name in self._mtp_fill)
        pairs = tokens * position + tokens * (tokens + 1) // 2
        attention = 4 * c.num_heads * c.head_dim * pairs * c.layer_types.count(FULL)
        return round(2 * weights * tokens + attention + 2 * self._head.numbers)

    # -- inside ------------------------------------------------------------------------------------

    @property
    def _head(self) -> Counted:
        return self._tensors.get(HEAD, self._tensors[EMBEDDING])

    @property
    def _body(self) -> list[str]:
        return [n for n in self._tensors if n not in (HEAD, EMBEDDING) and not _is_mtp(n)]

    @property
    def _mtp_fill(self) -> list[str]:
        return [n for n in self._tensors if _is_mtp(n) and n.endswith(MTP_FILL)]

    def _read(self, name: str, rows: int) -> int:
        """Bytes. Of routed experts, those that `rows` rows are expected to choose among them, if
        each row chooses at random."""
        size, moe = self._tensors[name].nbytes, self.config.moe
        if moe is None or ROUTED not in name:
            return size
        missed = (1 - moe.experts_per_row / moe.experts) ** rows
        return math.ceil(size * (1 - missed))

    def _used(self, name: str) -> float:
        """Weights that one token is multiplied with."""
        count, moe = self._tensors[name].numbers, self.config.moe
        if moe is None or ROUTED not in name:
            return count
        return count * moe.experts_per_row / moe.experts

    def _kv_bytes(self, context: int) -> int:
        c = self.config
        size = (self.kv_dtype or self.dtype).itemsize
        return 2 * c.num_kv_heads * c.head_dim * size * context


def _is_mtp(name: str) -> bool:
    return name.startswith(MTP_PREFIX)
