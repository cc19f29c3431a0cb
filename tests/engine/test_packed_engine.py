"""The real engine over quantized checkpoints: the reference's logits, every law of the state."""

from collections.abc import Callable

import attrs
import pytest
import torch

from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import EngineMisuse
from tests.engine.contract import CHECKS, SEEDED, fill, same_capsule, take
from tests.engine.laws import check_every_law
from tests.engine.models import Shape, ids
from tests.engine.packers import PACKERS
from tests.engine.quantized import engine_of, model_of
from tests.engine.sharing import SHARING

DENSE = Shape(hidden=160, inner=288, layers=2, interval=2, vocab=64)
MIXTURE = attrs.evolve(DENSE, experts=5, experts_per_row=2)
FORMATS = {
    "fp8": ("fp8 blocks", DENSE),
    "int4": ("int4 packed with zeros", DENSE),
    "nvfp4": ("nvfp4, divided", DENSE),
    "fp8 mixture": ("fp8 blocks", MIXTURE),
}
QUICK = (("fp8 blocks", "dense"), ("int4 GPTQ", "mixture"), ("nvfp4, multiplied", "dense"))
CLOSE = {torch.float32: 2e-5, torch.bfloat16: 0.15}
"""Of logits of size 3: sums in another order, and every row and matrix rounded."""
PROMPT = ids(150, 64)

Make = Callable[..., tuple[HybridEngine, HybridEngine]]
Place = tuple[torch.dtype, str]
CPU: Place = (torch.float32, "cpu")
GPUS = [
    pytest.param((dtype, "cuda"), marks=pytest.mark.gpu)
    for dtype in (torch.float32, torch.bfloat16)
]


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory) -> Make:
    """Two engines of one packed checkpoint, made once for each format."""
    made: dict[tuple[object, ...], tuple[HybridEngine, HybridEngine]] = {}

    def make(name: str, place: Place = CPU, mtp: str | None = "plain"):
        if (name, place, mtp) not in made:
            packer, shape = FORMATS[name]
            folder = tmp_path_factory.mktemp("packed")
            model_of(folder, shape, packer, mtp=mtp)
            dtype, device = place
            made[name, place, mtp] = tuple(
                engine_of(folder, max_seq=256, dtype=dtype, device=device) for _ in range(2)
            )
        for engine in made[name, place, mtp]:
            engine.reset()
        return made[name, place, mtp]

    return make


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param(
            name,
            shape,
            id=f"{name} {kind}",
            marks=[] if (name, kind) in QUICK else pytest.mark.slow,
        )
        for name in PACKERS
        for kind, shape in {"dense": DENSE, "mixture": MIXTURE}.items()
    ],
)
def test_logits_are_the_references_with_the_same_dense_numbers(tmp_path, name, shape):
    """In a block, and row by row over a multiple of 64; in bfloat16 within its rounding, where that
    chooses no other experts."""
    assert_close_to_reference(tmp_path, shape, name, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("name", PACKERS)
def test_logits_on_a_gpu_are_the_references_too(tmp_path, name):
    """Of the same dense numbers, by the reference on a CPU."""
    assert_close_to_reference(tmp_path, DENSE, name, "cuda")


def assert_close_to_reference(folder, shape: Shape, name: str, device: str) -> None:
    """Of a model that is packed like this."""
    model = model_of(folder, shape, name, mtp=None)
    with torch.no_grad():
        wanted = model(torch.tensor([PROMPT[:80]])).logits[0, -1]
    for dtype, close in CLOSE.items():
        if shape.experts and dtype != torch.float32:
            continue
        live = engine_of(folder, max_seq=256, dtype=dtype, device=device)._live
        live.reset()
        live.process_block(PROMPT[:80])
        torch.testing.assert_close(live.logits().cpu(), wanted, atol=close, rtol=0)
        live.reset()
        live.process_block(PROMPT[:50])
        live.process_rows(PROMPT[50:80])
        torch.testing.assert_close(live.logits().cpu(), wanted, atol=close, rtol=0)


@pytest.mark.parametrize("place", [CPU, *GPUS], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_every_law_holds_over_a_packed_model(pair_of, name, place):
    """Restored = never left; rolled back = never decoded; drafts or none = the same bytes."""
    engine, other = pair_of(name, place)
    check_every_law(engine, other, PROMPT)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("check", [*CHECKS, *SHARING], ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", FORMATS)
def test_the_whole_contract_holds_over_a_packed_model(pair_of, name, check, dtype):
    """The law named by the check, in every format; a minute for all."""
    check(*pair_of(name, (dtype, "cpu"), "packed"))


@pytest.mark.gpu
@pytest.mark.parametrize("check", [*CHECKS, *SHARING], ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", FORMATS)
def test_the_whole_contract_holds_over_a_packed_model_on_a_gpu(pair_of, name, check):
    """In bfloat16, which is what a GPU computes in."""
    check(*pair_of(name, (torch.bfloat16, "cuda"), "packed"))


def test_a_packed_mtp_layer_drafts_as_its_dense_numbers_do(pair_of):
    """What it drafts changes no id; its rows are cut out of one packed projection."""
    engine, other = pair_of("int4", mtp="packed")
    layer = engine._live.mtp.layer
    assert len(layer.queries) + len(layer.keys_values) == len(layer.mixer.weights.qkv_proj)
    fill(engine, PROMPT[:70])
    fill(other, PROMPT[:70])
    off = attrs.evolve(SEEDED, draft_tokens=0)
    assert take(engine, 30, SEEDED) == take(other, 30, off)
    assert same_capsule(engine.snapshot(), other.snapshot())


def test_a_capsule_of_one_format_is_not_taken_by_another(pair_of):
    """Nor by the same format of other numbers."""
    (fp8, _), (int4, _) = pair_of("fp8"), pair_of("int4")
    for engine in (fp8, int4):
        fill(engine, PROMPT[:20])
    for one, other in ((fp8, int4), (int4, fp8)):
        with pytest.raises(EngineMisuse, match="a capsule of engine"):
            one.restore(other.snapshot())
