"""Products of a block whose weights and rows are fed by the copy engine."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from flashrt.engine import ops
from flashrt.engine.forms import BLOCK, SPAN, Fp8Blocks, Int4
from flashrt.engine.kernels.streams import can_stream
from flashrt.engine.matrix import Packed
from tests.engine.kernels.compare import BITS, CUDA, distance, noise
from tests.engine.kernels.packs import E4M3_SUMS, fp8_blocks, fp8_rows, int4, nvfp4

from flashrt.engine.kernels import blocklinear, e4m3  # isort: skip
from flashrt.engine.kernels.terms import Terms, WithTerms  # isort: skip
from flashrt.engine.kernels.tiles import FUSED_ROWS, Runs, e4m3_block_tile  # isort: skip

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not can_stream(CUDA), reason="the kernel is for Hopper, in the language of Triton 3.6"
    ),
]

CLOSE = BITS[torch.bfloat16]
COUNTS = [1, 31, 32, 33, 64, 65, 100, 128, 129, 200, 256]
FORMS: dict[str, Callable[[int, int], Fp8Blocks | Int4]] = {
    "fp8": fp8_blocks,
    "int4 g128": lambda n, k: int4(n, k, 128),
    "int4 g256, float16 scales": lambda n, k: int4(n, k, 256, torch.float16),
    "int4, one group": lambda n, k: int4(n, k, k),
}
SHAPES = [(128, 256), (384, 1280), (768, 2304), (5120, 1024), (17664, 512)]
"""One step; half a tile at the end; odd steps; several parts; runs across the borders of tiles."""
FORMATS = pytest.mark.parametrize("name", FORMS)


@pytest.fixture(scope="module")
def streamed():
    """The module, which only such a device may import."""
    from flashrt.engine.kernels import blockstreamed

    return blockstreamed


def rows_of(count: int, k: int) -> Tensor:
    """The first of 256."""
    return noise(FUSED_ROWS, k, seed=5, dtype=torch.bfloat16)[:count].contiguous()


def wanted(x: Tensor, form: Fp8Blocks | Int4) -> Tensor:
    """The product with the same dense weights in float64."""
    return x.double() @ form.dense(torch.float32).double().T


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@FORMATS
def test_products_equal_those_of_the_same_dense_weights(streamed, name: str, shape):
    """In one part, in several, and gated, of any number of rows."""
    form = FORMS[name](*shape)
    for count in COUNTS:
        x = rows_of(count, shape[1])
        right = wanted(x, form)
        y = x.new_empty(count, shape[0])

        streamed.linear(x, form, y)

        assert distance(y, right) < CLOSE, count
        assert distance(streamed.linear_parts(x, form).sum(0), right) < E4M3_SUMS, count
        if shape[0] % (2 * BLOCK) == 0:
            gated = streamed.silu_mul(x, form)
            assert distance(gated.rows, ops.silu_mul(right)) < 3 * CLOSE, count


@FORMATS
def test_a_row_of_a_block_has_bits_of_its_own(streamed, name: str):
    """Whatever the number of rows: cuts follow from the matrix alone."""
    form = FORMS[name](17664, 1024)
    x = rows_of(FUSED_ROWS, 1024)
    parts, gated = streamed.linear_parts(x, form), streamed.silu_mul(x, form)

    for count in COUNTS:
        some = x[:count].contiguous()
        assert torch.equal(streamed.linear_parts(some, form), parts[:, :count]), count
        assert torch.equal(streamed.silu_mul(some, form).rows, gated.rows[:count]), count


@FORMATS
def test_terms_of_a_gated_product_are_those_of_its_rows(streamed, name: str):
    """As if made behind it."""
    form, x = FORMS[name](768, 512), rows_of(100, 512)

    gated = streamed.silu_mul(x, form)

    made = Terms.of(gated.rows)
    assert torch.equal(gated.terms.numbers.view(torch.uint8), made.numbers.view(torch.uint8))
    assert torch.equal(gated.terms.scales[..., :100], made.scales[..., :100])


@pytest.mark.parametrize("count", [1, 100, 200])
@FORMATS
def test_what_lies_behind_the_rows_is_neither_read_nor_written(streamed, name: str, count: int):
    """Scales of dead rows that are no numbers, and rows of the result beside those of a part."""
    form, x = FORMS[name](384, 512), rows_of(count, 512)
    clean = Terms.of(x)
    y = torch.full((count + 1, 512), 7.0, dtype=torch.bfloat16, device=CUDA)
    streamed.linear(WithTerms(x, clean), form, y[:count, 64:448])
    dirty = Terms(clean.numbers, clean.scales.clone())
    dirty.scales[..., count:] = float("nan")

    again = torch.full_like(y, 7.0)
    streamed.linear(WithTerms(x, dirty), form, again[:count, 64:448])

    assert torch.equal(again, y)
    assert bool((y[count:] == 7).all())
    assert bool((y[:, :64] == 7).all())
    assert bool((y[:, 448:] == 7).all())
    assert not bool(y.isnan().any())


@FORMATS
def test_every_part_that_is_read_was_written(streamed, name: str, monkeypatch: pytest.MonkeyPatch):
    """Memory that a product finds holds what is no number, and its results are the same."""
    form, x = FORMS[name](17664, 512), rows_of(100, 512)
    parts, gated = streamed.linear_parts(x, form), streamed.silu_mul(x, form)
    new_empty = Tensor.new_empty

    def poison(tensor: Tensor, *shape: int, **options) -> Tensor:
        return new_empty(tensor, *shape, **options).fill_(float("nan"))

    monkeypatch.setattr(Tensor, "new_empty", poison)

    assert torch.equal(streamed.linear_parts(x, form), parts)
    assert torch.equal(streamed.silu_mul(x, form).rows, gated.rows)


@FORMATS
def test_a_row_that_is_no_number_spoils_itself_alone(streamed, name: str):
    """All others keep their bits."""
    form, x = FORMS[name](768, 512), rows_of(40, 512)
    clean = streamed.linear_parts(x, form)
    x[7] = float("nan")

    spoiled = streamed.linear_parts(x, form)

    kept = [row for row in range(40) if row != 7]
    assert torch.equal(spoiled[:, kept], clean[:, kept])


@pytest.mark.parametrize("name", ["fp8", "int4 g128"])
def test_one_part_is_that_of_the_kernel_for_other_matrices(streamed, name: str):
    """The same sums in the same order, but for what the compiler makes one instruction of."""
    form, x = FORMS[name](640, 1024), rows_of(100, 1024)
    y, other = x.new_empty(100, 640), x.new_empty(100, 640)

    streamed.linear(x, form, y)
    e4m3.fill_block(x, form, other, e4m3_block_tile(type(form).__name__, 640, 1024, 100))

    assert distance(y, other) < 1e-4


def test_runs_in_a_graph_are_the_same(streamed):
    """Replayed behind each other, each waiting for the one before."""
    up, down, x = fp8_blocks(1024, 512), fp8_blocks(512, 512), rows_of(100, 512)

    def product() -> Tensor:
        return streamed.linear_parts(streamed.silu_mul(x, up), down)

    right, graph = product(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = product()
    for _ in range(3):
        result.zero_()
        graph.replay()
        assert torch.equal(result, right)


def test_it_takes_whole_tiles_of_what_lies_as_it_is_read(streamed):
    """All else goes as it went."""
    assert streamed.takes(fp8_blocks(256, 384), 1)
    assert streamed.takes(int4(256, 2 * SPAN, 128), FUSED_ROWS)
    assert not streamed.takes(fp8_blocks(256, 384), FUSED_ROWS + 1)
    assert not streamed.takes(fp8_blocks(200, 384), 64)
    assert not streamed.takes(fp8_blocks(256, 400), 64)
    assert not streamed.takes(fp8_blocks(256, 384, 100), 64)
    assert not streamed.takes(fp8_rows(256, 384), 64)
    assert not streamed.takes(int4(256, 512, 64), 64)
    assert not streamed.takes(int4(256, 384, 128), 64)
    assert not streamed.takes(nvfp4(256, 384), 64)


def test_a_block_product_goes_this_way_where_it_may(streamed):
    """With parts as `Runs` has them, and terms behind gates."""
    form, x = fp8_blocks(512, 1024), rows_of(100, 1024)
    matrix = Packed((form,), torch.bfloat16)
    processors = torch.cuda.get_device_properties(CUDA).multi_processor_count

    parts = blocklinear.block_linear_parts(x, matrix)

    assert len(parts) == Runs.alike(512, 8, processors).most
    assert isinstance(blocklinear.block_silu_mul(x, matrix), WithTerms)
    tail = noise(96, 1024, seed=3, dtype=torch.bfloat16) * 0.05
    y = blocklinear.block_linear(x, Packed((form, tail), torch.bfloat16))
    both = torch.cat([wanted(x, form), x.double() @ tail.double().T], 1)
    assert distance(y, both) < CLOSE
