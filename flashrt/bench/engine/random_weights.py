"""Random weights of a shape, made where they are used: no checkpoint file, no copy.

Seeded, so a run can be repeated; sized so that a layer's output has about the size of its input,
whatever the depth, and that the state remembers hundreds of tokens, as trained heads do.
"""

import itertools
import math
import re

import attrs
import torch
from torch import Tensor

from flashrt.engine.config import ModelConfig
from flashrt.engine.forms import (
    FP8_BLOCKS,
    INT4,
    NVFP4,
    Form,
    FormSpec,
    Fp8Blocks,
    Fp8Rows,
    Int4,
    Nvfp4,
)
from flashrt.engine.tensor_plan import Layout, allocate, allocate_all
from flashrt.engine.weights import ModelWeights

PLAIN_NORM = "linear_attn.norm.weight"
"""The one norm that is no offset from 1."""

BY_NAME = {
    PLAIN_NORM: (1.0, 0.02),
    "linear_attn.A_log": (-1.0, 0.5),
    "linear_attn.dt_bias": (-4.0, 1.0),
    "linear_attn.conv1d.weight": (0.0, 0.5),
    "embed_tokens.weight": (0.0, 1.0),
}
"""By the end of a tensor's name in a checkpoint: mean and standard deviation."""

NORM = (0.0, 0.02)

LEFT_PLAIN = re.compile(r"mtp\.|lm_head|.*in_proj_[ab]\.")
"""What they leave as it is. The head is, too, and so a step reads it in full."""

MATRIX = re.compile(r".*(?:_proj|in_proj_\w+)\.weight$")

INT4_SPREAD, NVFP4_SPREAD = 4.64, 2.93
"""Standard deviations of what random bits mean."""

ROWS_AT_ONCE = 256
"""Of a matrix that is made; the numbers are twice as many bytes before they are rounded."""


@attrs.frozen(eq=False)
class NamedModel:
    """Weights, and where they are known the same memory as a checkpoint's tensors by name."""

    config: ModelConfig
    weights: ModelWeights
    tensors: dict[str, Tensor]
    layout: Layout


def random_model(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 0,
    number_format: str | None = None,
) -> NamedModel:
    """The MTP layer included, where the config has one. `number_format`: one of NUMBER_FORMATS."""
    layout = random_layout(config, number_format)
    made = allocate_all(config, device, dtype, layout)
    noise = torch.Generator(device=device).manual_seed(seed)
    for name, tensor in made.slots.items():
        tensor.normal_(*_spread(name, tensor.shape), generator=noise)
    for form in made.forms.values():
        _fill(form, form.columns**-0.5, noise)
    checksum = f"random {number_format or 'plain'}, seed {seed}"
    return NamedModel(config, attrs.evolve(made.weights, checksum=checksum), made.slots, layout)


def random_layout(config: ModelConfig, number_format: str | None = None) -> Layout:
    """Every layer's matrices in one form, or all plain."""
    plain = Layout(mtp=config.mtp_layers > 0)
    if number_format is None:
        return plain
    _, slots = allocate(config, "meta", torch.bfloat16, plain)
    columns = {key: slot.shape[-1] for key, slot in slots.items() if MATRIX.match(key)}
    if config.moe:
        parts = {"gate": config.hidden_size, "up": config.hidden_size}
        parts["down"] = config.moe.intermediate_size
        for i, e in itertools.product(range(len(config.layer_types)), range(config.moe.experts)):
            at = f"model.layers.{i}.mlp.experts.{e}"
            columns |= {f"{at}.{part}_proj.weight": k for part, k in parts.items()}
    packed = {
        key: _spec(number_format, k) for key, k in columns.items() if not LEFT_PLAIN.match(key)
    }
    return attrs.evolve(plain, quantized=packed)


def _spec(number_format: str, k: int) -> FormSpec:
    """As most releases are packed; a group is shorter where rows are."""
    if number_format == "int4":
        return FormSpec(INT4, math.gcd(128, k), torch.bfloat16)
    return FormSpec(FP8_BLOCKS if number_format == "fp8" else NVFP4)


def _fill(form: Form, spread: float, noise: torch.Generator) -> None:
    """Random bits with a scale that gives the numbers this spread."""
    match form:
        case Fp8Blocks() | Fp8Rows():
            for rows in form.weight.split(ROWS_AT_ONCE):
                drawn = torch.randn(rows.shape, generator=noise, device=rows.device)
                rows.copy_(drawn)
            form.scale.fill_(spread)
        case Int4():
            form.weight.random_(-(2**31), 2**31 - 1, generator=noise)
            form.scale.fill_(spread / INT4_SPREAD)
            form.zero.fill_(8)
        case Nvfp4():
            form.weight.random_(-(2**31), 2**31 - 1, generator=noise)
            form.scale.copy_(torch.ones((), device=form.scale.device))
            form.row_scale.fill_(spread / NVFP4_SPREAD)


def _spread(name: str, shape: torch.Size) -> tuple[float, float]:
    """Mean and standard deviation."""
    for ending, spread in BY_NAME.items():
        if name.endswith(ending):
            return spread
    if len(shape) == 1:
        return NORM
    return 0.0, shape[-1] ** -0.5
