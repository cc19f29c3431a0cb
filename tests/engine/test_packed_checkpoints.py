"""Quantized checkpoints load into what their quantizers meant, or are refused by tensor."""

import shutil
from pathlib import Path

import attrs
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load as parse
from safetensors.torch import load_file, save_file
from torch import Tensor

from flashrt.engine.checkpoint import opened
from flashrt.engine.forms import Fp8Blocks, Int4, Nvfp4
from flashrt.engine.identity import identity_of
from flashrt.engine.matrix import Experts, Packed
from flashrt.engine.memory import Needs
from flashrt.engine.placement import Placement
from tests.engine.checkpoints import (
    NO_MTP,
    WEIGHTS,
    assert_holds,
    assert_mtp_holds,
    edit_config,
    load,
    mtp_like,
    refusal,
    saved,
)
from tests.engine.packers import PACKERS, fits, int4_gptq
from tests.engine.quantized import everywhere, matrices, numbers, rewritten, written

SIZES = {"hidden_size": 160, "linear_value_head_dim": 16}
DENSE = {**SIZES, "intermediate_size": 288}
MIXTURE = {**SIZES, "moe_intermediate_size": 160, "shared_expert_intermediate_size": 32}
PACKED = [name for name in PACKERS if name not in ("plain", "nvfp4, divided")]
"""What is read bit for bit; how the other one is rounded is in test_repack.py."""
COVERING = (
    *(("fp8 blocks", False), ("int4 GPTQ", False), ("int4 AWQ", False)),
    *(("int4 packed with zeros", True), ("nvfp4, divided by a power of two", True)),
)
"""What is tried by default; test_repack.py has every spelling of one matrix."""
UP = "model.layers.1.mlp.up_proj"
"""A matrix that every packer fits."""


@pytest.fixture(scope="module")
def originals(tmp_path_factory) -> dict[bool, Path]:
    """A plain checkpoint without and one with experts, each with an MTP layer in bfloat16."""
    folders = {}
    for moe in (False, True):
        folders[moe] = tmp_path_factory.mktemp("plain")
        saved(folders[moe], moe=moe, **(MIXTURE if moe else DENSE))
        tensors = load_file(folders[moe] / WEIGHTS)
        widths = {32: 160, 64: 320}
        mtp = {}
        for name, tensor in mtp_like(tensors).items():
            shape = tensor.shape if "layers" in name else [widths[n] for n in tensor.shape]
            mtp[name] = torch.randn(shape, generator=torch.Generator().manual_seed(len(mtp)))
        written(folders[moe], {**tensors, **{name: t.bfloat16() for name, t in mtp.items()}})
    return folders


@pytest.fixture
def copied(originals, tmp_path):
    """A fresh copy to rewrite, and its tensors."""

    def copy(moe: bool = False) -> tuple[Path, dict[str, Tensor]]:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        shutil.copytree(originals[moe], folder)
        return folder, load_file(folder / WEIGHTS)

    return copy


def holds(folder: Path, meant: dict[str, Tensor]) -> tuple[str, ...]:
    """Every tensor, the MTP layer's included; what is said of the rest."""
    loaded = load(folder)
    assert_holds(loaded, meant)
    assert_mtp_holds(loaded, meant)
    torch.testing.assert_close(numbers(loaded.weights.lm_head), meant["lm_head.weight"])
    return loaded.unused


@pytest.mark.parametrize(
    ("name", "moe"),
    [
        pytest.param(name, moe, marks=[] if (name, moe) in COVERING else pytest.mark.slow)
        for name in PACKED
        for moe in (False, True)
    ],
)
def test_every_spelling_is_read_in_every_matrix(copied, name, moe):
    """Bit for bit, fused or not, expert by expert, in three files, the MTP layer too."""
    folder, tensors = copied(moe)
    packers = everywhere(tensors, name)
    assert len(packers) > 20
    holds(folder, rewritten(folder, packers, shards=3))


def test_an_mtp_layer_in_bfloat16_stays_so_in_a_packed_model(copied):
    """Whatever config.json says of it."""
    folder, tensors = copied()
    packers = {n: p for n, p in everywhere(tensors, "int4 GPTQ").items() if n[:4] != "mtp."}
    meant = rewritten(
        folder, packers, claims={"quant_method": "gptq", "dynamic": {"-:.*in_proj_[ab]": {}}}
    )
    (note,) = holds(folder, meant)
    assert note.startswith("config.json: quantization_config (gptq) says otherwise, but")
    assert "mtp.fc.weight (and " in note
    assert isinstance(load(folder).weights.mtp.fc, Tensor)


@st.composite
def packs(draw: st.DrawFn) -> dict[str, object]:
    """Any packer for any matrix, dealt out to files in any way, beside lists that lie."""
    names = st.sampled_from([*PACKED, "plain"])
    return {
        "moe": draw(st.booleans()),
        "few": draw(st.lists(names, min_size=1, max_size=4)),
        "turn": draw(st.integers(1, 7)),
        "shards": draw(st.integers(1, 5)),
        "ignored": draw(st.sampled_from(["mlp", "re:.*attn.*", "*layers.1*", "lm_head"])),
        "method": draw(st.sampled_from(["fp8", "compressed-tensors", "awq", "modelopt", None])),
    }


@given(pack=packs())
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mixture_of_spellings_is_read_whatever_is_said_of_it(originals, tmp_path, pack):
    """What is stored counts, tensor by tensor; how the tensors lie in files does not."""
    mixture_is_read(originals, tmp_path, pack)


@pytest.mark.slow
@given(pack=packs())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_of_many_mixtures_is_read(originals, tmp_path, pack):
    """The same, longer: about a minute."""
    mixture_is_read(originals, tmp_path, pack)


def mixture_is_read(originals, tmp_path, pack) -> None:
    """Write one of `packs` and read it."""
    folder = tmp_path / "pack"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(originals[pack["moe"]], folder)
    tensors, few = load_file(folder / WEIGHTS), pack["few"]
    packers = {}
    for i, name in enumerate(matrices(tensors)):
        packer = few[i * pack["turn"] % len(few)]
        if fits(packer, *tensors[name].shape):
            packers[name] = packer
    method = pack["method"]
    claims = {"quant_method": method, "ignore": [pack["ignored"]]} if method else None
    meant = rewritten(folder, packers, shards=pack["shards"], claims=claims)
    loaded = load(folder)
    assert_holds(loaded, meant)
    assert_mtp_holds(loaded, meant)


def test_notes_say_what_is_not_as_it_is_said(copied):
    """Once for all of it; nothing is said of lists that are right."""
    folder, _ = copied()
    packers = {UP + ".weight": "fp8 blocks"}
    right = {"quant_method": "fp8", "modules_to_not_convert": ["re:(?!.*layers.1.mlp.up)"]}
    rewritten(folder, packers, claims=right)
    assert load(folder).unused == ()
    edit_config(folder, quantization_config={**right, "modules_to_not_convert": ["re:.*"]})
    assert load(folder).unused == (
        f"config.json: quantization_config (fp8) says otherwise, but {UP}.weight is quantized: "
        "what is stored counts",
    )
    edit_config(folder, quantization_config=None)
    (note,) = load(folder).unused
    assert note.startswith("config.json says nothing of quantization")


def test_scales_of_activations_are_left_out_and_said(copied):
    """They are in no checksum."""
    folder, _ = copied()
    claims = {"quant_method": "fp8", "ignore": ["re:(?!.*layers.1.mlp.up)"]}
    rewritten(folder, {UP + ".weight": "fp8 tensor"}, claims=claims)
    loaded = load(folder)
    assert loaded.unused == ("scales of activations (1 tensors): only weights are quantized here",)
    stored = load_file(folder / WEIGHTS)
    stored.pop(UP + ".input_scale")
    written(folder, stored)
    assert load(folder).weights.checksum == loaded.weights.checksum


def test_neighbours_of_one_form_lie_in_one_part(copied):
    """Rows of blocks only where a block ends; a plain neighbour begins a part of its own."""
    folder, tensors = copied()
    rewritten(folder, everywhere(tensors, "fp8 blocks"))
    layer = load(folder).weights.layers[3]
    # q has 128 rows, k and v 32 each: k begins a block, v does not.
    assert [len(part.weight) for part in layer.mixer.qkv_proj.parts] == [160, 32]
    folder, tensors = copied()
    rewritten(folder, everywhere(tensors, "int4 GPTQ"))
    weights = load(folder).weights
    parts = weights.layers[0].mixer.in_proj.parts
    assert [type(part) for part in parts] == [Int4, Tensor]
    assert [len(part.weight) for part in weights.layers[3].mixer.qkv_proj.parts] == [192]
    folder, tensors = copied(True)
    rewritten(folder, everywhere(tensors, "nvfp4, multiplied"))
    experts = load(folder).weights.layers[0].mlp.gate_up
    assert isinstance(experts, Experts)
    assert [type(part) for part in experts.stack.parts] == [Nvfp4]
    # Of experts blocks begin anew in each matrix, so they lie together whatever their size.
    folder, tensors = copied(True)
    rewritten(folder, everywhere(tensors, "fp8 blocks"))
    moe = load(folder).weights.layers[0].mlp
    for matrix in (moe.gate_up.stack, moe.down.stack, moe.shared.gate_up):
        assert [type(part) for part in matrix.parts] == [Fp8Blocks]


def test_experts_are_packed_one_by_one(copied):
    """Some of a layer quantized and some not, gate and up apart."""
    folder, _ = copied(True)
    at = "model.layers.0.mlp.experts."
    packers = {f"{at}0.gate_proj.weight": "fp8 rows", f"{at}2.down_proj.weight": "fp8 blocks"}
    holds(folder, rewritten(folder, packers))
    moe = load(folder).weights.layers[0].mlp
    assert [type(part) for part in moe.down.stack.parts] == [Tensor, Fp8Blocks]
    assert load(folder).weights.layers[1].mlp.gate_up.shape == (3, 320, 160)


def test_a_tied_model_may_have_a_packed_head(tmp_path):
    """It is the head, and the embedding stays what it was."""
    stored = saved(tmp_path, tie_word_embeddings=True, **DENSE)
    tensors = load_file(tmp_path / WEIGHTS)
    head = stored["model.embed_tokens.weight"].clone()
    written(tmp_path, {**tensors, "lm_head.weight": head})
    meant = rewritten(tmp_path, {"lm_head.weight": "fp8 rows"})
    loaded = load(tmp_path)
    assert isinstance(loaded.weights.lm_head, Packed)
    assert torch.equal(numbers(loaded.weights.lm_head), meant["lm_head.weight"])
    assert torch.equal(loaded.weights.embed, head)
    assert NO_MTP in loaded.unused


@pytest.mark.parametrize(
    "name",
    ["model.embed_tokens.weight", "model.layers.0.mlp.gate.weight", "model.layers.0.other.weight"],
)
def test_only_matrices_of_products_may_be_packed(copied, name):
    """Embedding and router are plain; what is no part of the model has no place."""
    folder, tensors = copied(True)
    odd = tensors.get(name, torch.ones(32, 160))
    written(folder, {**tensors, name: odd})
    rewritten(folder, {name: "fp8 rows"})
    message = refusal(folder)
    assert f"tensor {name} in {WEIGHTS} is FP8" in message
    assert ("has no place" if "other" in name else "in plain numbers only") in message


def test_fused_experts_of_eight_bits_are_refused(copied):
    """No release has them; the refusal says what is read."""
    folder, tensors = copied(True)
    at = "model.layers.0.mlp.experts."
    kept = {n: t for n, t in tensors.items() if not n.startswith(at)}
    fused = torch.zeros(3, 320, 160, dtype=torch.float8_e4m3fn)
    plain_down = torch.zeros(3, 160, 160)
    written(folder, {**kept, at + "gate_up_proj": fused, at + "down_proj": plain_down})
    message = refusal(folder)
    assert f"tensor {at}gate_up_proj in {WEIGHTS} is stored as F8_E4M3" in message
    assert "with their scales" in message


def test_a_scale_that_is_missing_or_cut_off_is_refused(copied):
    """By its name; a file that ends too early names the tensor that it ends in."""
    folder, tensors = copied()
    rewritten(folder, everywhere(tensors, "fp8 blocks"), shards=2)
    for file in folder.glob("*.safetensors"):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        assert "is cut short: " in refusal(folder)
        stored = parse(whole)
        name = next((n for n in stored if n.endswith("up_proj.weight_scale_inv")), None)
        if name:
            stored.pop(name)
            save_file(stored, file)
            assert name in refusal(folder)
            assert "which is missing" in refusal(folder)
        file.write_bytes(whole)
    assert load(folder)


def test_values_that_are_odd_are_refused_by_tensor(copied):
    """What only reading shows: scales that are not finite, another order of columns."""
    folder, tensors = copied()
    for name, ending, change, words in (
        ("fp8 blocks", "weight_scale_inv", lambda t: t.fill_(torch.nan), "not finite"),
        ("nvfp4, multiplied", "weight_scale", lambda t: t.view(torch.uint8).fill_(127), "finite"),
        ("nvfp4, divided", "weight_global_scale", lambda t: t.zero_(), "is 0.0"),
        ("int4 GPTQ", "g_idx", lambda t: t.copy_(t.flip(0)), "desc_act or actorder"),
        ("int4 packed", "weight_shape", lambda t: t.add_(8), "says [296, 168]"),
        ("int4 AWQ", "scales", lambda t: t.fill_(torch.inf), "not finite"),
    ):
        written(folder, tensors)
        rewritten(folder, {UP + ".weight": name})
        stored = load_file(folder / WEIGHTS)
        change(stored[f"{UP}.{ending}"])
        written(folder, stored)
        message = refusal(folder)
        assert f"tensor {UP}.{ending} in {WEIGHTS} " in message
        assert words in message


def test_every_format_is_another_model(copied):
    """No state of one is another's, also where all numbers are equal; shards change nothing."""
    identities = set()
    for packer in ("plain", "fp8 blocks", "int4 AWQ"):
        for shards in (1, 3):
            folder, _ = copied()
            rewritten(folder, {UP + ".weight": packer}, shards=shards)
            loaded = load(folder)
            identities.add(identity_of(loaded.config, loaded.weights))
    assert len(identities) == 3


def test_zeros_that_mean_something_else_are_another_model(copied):
    """The files are equal, config.json is not."""
    folder, _ = copied()
    packers = {UP + ".weight": lambda w: int4_gptq(w, offset=0)}
    meant = rewritten(folder, packers, claims={"quant_method": "gptq", "format": "gptq_v2"})
    holds(folder, meant)
    new = load(folder).weights.checksum
    edit_config(folder, quantization_config={"quant_method": "gptq"})
    assert load(folder).weights.checksum != new


@pytest.mark.parametrize(
    ("name", "moe"),
    [("fp8 blocks", False), ("int4 packed with zeros", True), ("nvfp4, multiplied", False)],
)
def test_memory_is_counted_from_headers_as_it_is_taken(copied, name, moe):
    """Byte for byte, before a weight is read; a packed model takes less than a plain one."""
    folder, tensors = copied(moe)
    plain = counted(folder)
    rewritten(folder, everywhere(tensors, name))
    weights, seen = load(folder).weights, {}
    for tensor in _tensors(weights):
        seen[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
    assert counted(folder) == sum(seen.values()) < plain


def counted(folder: Path) -> int:
    """Bytes of weights on a CPU in float32."""
    checkpoint = opened(folder)
    place = Placement(torch.device("cpu"), torch.float32)
    return Needs(checkpoint.config, place, checkpoint.layout, 64, 0).weights


def _tensors(value: object) -> list[Tensor]:
    """Every tensor in nested values."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple):
        return [tensor for one in value for tensor in _tensors(one)]
    if attrs.has(type(value)):
        return [t for one in attrs.asdict(value, recurse=False).values() for t in _tensors(one)]
    return []
