"""A check at start that this machine keeps the promise of the row family.

A row's bits may depend neither on how many rows ride along nor on its index among them; libraries
do not promise that, so it is tried on the very weights and shapes that will be served.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from flashrt.engine.buffers import CHUNK
from flashrt.engine.ffn import matrices
from flashrt.engine.linear import GROUP
from flashrt.engine.live import LiveState
from flashrt.engine.matrix import Matrix, Packed
from flashrt.engine.weights import FullAttentionWeights, LayerWeights
from flashrt.errors import CannotServe

TOGETHER = 6
"""Rows that are processed one by one and at once; they cross a fold."""

Product = Callable[[Tensor, Matrix], Tensor]


@torch.inference_mode()
def check_rows(live: LiveState) -> None:
    """Raise CannotServe, naming the product or buffer whose bits differ. Leaves `live` empty."""
    seen: set[tuple[object, ...]] = set()
    for name, product, weight in _products(live):
        form = weight.layout() if isinstance(weight, Packed) else ()
        if (kind := (weight.dtype, *weight.shape, *form)) not in seen:
            seen.add(kind)
            check_product(name, product, weight)
    live.reset()
    _check_steps(live)
    live.reset()


def _products(live: LiveState) -> Iterator[tuple[str, Product, Matrix]]:
    model, weights = live.model, live.model.weights
    yield "lm_head", model.head_product, weights.lm_head
    for i, layer in enumerate(weights.layers):
        for part, weight in _layer_matrices(layer):
            yield f"layers.{i} {part}", model.rows_product, weight
    if live.mtp:
        mtp = live.mtp.layer
        yield "mtp fc", model.rows_product, mtp.weights.fc
        yield "mtp q projection", model.rows_product, mtp.queries
        yield "mtp k, v projection", model.rows_product, mtp.keys_values
        for part, weight in _layer_matrices(mtp.weights.layer):
            yield f"mtp {part}", model.rows_product, weight


def _layer_matrices(layer: LayerWeights) -> Iterator[tuple[str, Matrix]]:
    mixer = layer.mixer
    if isinstance(mixer, FullAttentionWeights):
        yield "q, k, v projection", mixer.qkv_proj
        yield "o projection", mixer.o_proj
    else:
        yield "linear attention in projection", mixer.in_proj
        yield "linear attention out projection", mixer.out_proj
    yield from matrices(layer.mlp)


def check_product(name: str, product: Product, weight: Matrix) -> None:
    """One row alone, at every index among its copies, and among other rows."""
    noise = torch.Generator().manual_seed(0)
    others = torch.randn(GROUP, weight.shape[1], generator=noise).to(weight.device, weight.dtype)
    alone = product(others[:1], weight)[0]
    copies = product(others[:1].expand(GROUP, -1).contiguous(), weight)
    for index in range(GROUP):
        if not torch.equal(copies[index], alone):
            raise _refusal(name, f"at index {index} of {GROUP}")
    for index in (1, GROUP - 1):
        if not torch.equal(product(others.roll(index, 0), weight)[index], alone):
            raise _refusal(name, f"at index {index} among other rows")


def _check_steps(live: LiveState) -> None:
    """The same ids one by one and at once, through the whole model."""
    vocabulary = live.model.config.vocab_size
    start = CHUNK - TOGETHER // 2
    ids = [(7919 * i + 11) % vocabulary for i in range(start + TOGETHER)]
    live.process_block(ids[:start])
    before = live.saved(start)
    for id_ in ids[start:]:
        live.process_rows([id_])
        if live.mtp:
            live.mtp.settle(live.position)  # at once, not in a group with the others
    alone = live.saved(live.position)
    live.load(start, before)
    live.process_rows(ids[start:])
    for name, buffer in live.saved(live.position).items():
        if not same_bits(buffer, alone[name]):
            raise _refusal(f"the state's {name}", f"after {TOGETHER} rows at once")


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equal shape, dtype and bytes: unlike ==, tells 0 from -0 and a NaN equals itself."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    as_bytes = (x.contiguous().view(-1).view(torch.uint8) for x in (one, other))
    return torch.equal(*as_bytes)


def _refusal(what: str, where: str) -> CannotServe:
    return CannotServe(
        f"this machine's matrix library does not keep a row's bits: {what} differs {where} from "
        "the row alone; another thread count (OMP_NUM_THREADS) or dtype may help"
    )
