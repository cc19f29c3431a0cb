"""Random mixtures of experts in packed forms, and what their numbers mean."""

from collections.abc import Callable

import attrs
import torch
from torch import Tensor

from flashrt.engine.forms import BLOCK, Form, Fp8Blocks, Nvfp4
from flashrt.engine.matrix import Experts, Matrix, Packed, dense
from flashrt.engine.weights import MlpWeights, MoeWeights
from tests.engine.kernels.mixtures import Size
from tests.engine.kernels.packs import fp8_blocks, fp8_rows, int4, nvfp4

Make = Callable[[int, int, int], Form]
"""Of n rows and k columns; a matrix is so many of the rows."""


def _blocks(n: int, k: int, rows: int) -> Fp8Blocks:
    """Blocks of scales begin anew in each matrix."""
    each, count = -(-rows // BLOCK), n // rows
    padded = fp8_blocks(count * each * BLOCK, k)
    return Fp8Blocks(padded.weight[:n], padded.scale, period=rows if rows % BLOCK else BLOCK)


FORMS: dict[str, Make] = {
    "fp8 blocks": _blocks,
    "fp8 rows": lambda n, k, rows: fp8_rows(n, k),
    "int4 g64": lambda n, k, rows: int4(n, k, 64),
    "int4 g64, float16 scales": lambda n, k, rows: int4(n, k, 64, torch.float16),
    "int4, one group": lambda n, k, rows: int4(n, k, k, torch.float16),
    "int4 g16": lambda n, k, rows: int4(n, k, 16),
    "nvfp4": lambda n, k, rows: nvfp4(n, k),
}
RAGGED = ("fp8 blocks", "fp8 rows", "int4 g16", "nvfp4")
"""Those that take any multiple of 16 for K."""


@attrs.frozen
class Mix:
    """Which forms a mixture is in; PLAIN for tensors."""

    size: Size
    gate_up: str
    down: str
    shared: str

    @classmethod
    def of(cls, size: Size, form: str, shared: str | None = None) -> "Mix":
        """Of one form, but perhaps the shared expert."""
        return cls(size, form, form, shared or form)

    @property
    def name(self) -> str:
        """For a test's id."""
        forms = " / ".join(dict.fromkeys((self.gate_up, self.down, self.shared)))
        return f"{forms}, {self.size.hidden} x {self.size.inner}"

    def weights(self) -> MoeWeights:
        """As wide as `Size.weights`, and with its router."""
        size, plain = self.size, self.size.weights()
        h, inner, shared, count = size.hidden, size.inner, size.shared, size.experts
        gate_up, down = plain.gate_up, plain.down
        if self.gate_up != PLAIN:
            gate_up = Experts(_packed(self.gate_up, 2 * count * inner, h, inner), 2 * inner)
        if self.down != PLAIN:
            down = Experts(_packed(self.down, count * h, inner, h), h)
        own = plain.shared
        if self.shared != PLAIN:
            own = MlpWeights(_packed(self.shared, 2 * shared, h, shared),
                             _packed(self.shared, h, shared, h))  # fmt: skip
        return attrs.evolve(plain, gate_up=gate_up, down=down, shared=own)


PLAIN = "plain"


def _packed(name: str, n: int, k: int, rows: int) -> Packed:
    """With numbers of the size that keeps rows as they are."""
    form = FORMS[name](n, k, rows)
    spread = form.dense(torch.float32).std()
    (form.row_scale if isinstance(form, Nvfp4) else form.scale).mul_(k**-0.5 / spread)
    return Packed((form,), torch.bfloat16)


def meaning(weights: MoeWeights) -> MoeWeights:
    """The same in float32 tensors."""

    def whole(matrix: Matrix | Experts) -> Tensor:
        if isinstance(matrix, Experts):
            numbers = dense(matrix.stack, 0, len(matrix.stack), torch.float32)
            return numbers.view(len(matrix), matrix.rows, -1)
        return (
            matrix.float() if isinstance(matrix, Tensor) else whole(Experts(matrix, len(matrix)))[0]
        )

    shared = MlpWeights(whole(weights.shared.gate_up), whole(weights.shared.down))
    return attrs.evolve(
        weights, gate_up=whole(weights.gate_up), down=whole(weights.down), shared=shared
    )
