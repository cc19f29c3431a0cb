"""The demo's weights: noise under the published names, the same bytes for the same seed anywhere.

Each tensor's noise is keyed by (seed, name) and made from raw generator bits, which no release of
numpy changes. Scales are chosen so that text varies and the recurrent state matters for long.
"""

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

Shape = tuple[int, ...]

# Found by trying: less, and the model repeats its last token; more, and rounding errors of float32
# grow to 1e-4 in the logits.
EMBEDDING_STD = 0.1
MATRIX_GAIN = 0.55


@attrs.frozen
class Made:
    """A tensor as it goes into the file."""

    dtype: str
    shape: Shape
    data: bytes


def make_weights(config: Mapping[str, Any], seed: int) -> dict[str, Made]:
    """All tensors of the model that `config` (a config.json) describes, MTP layer included."""
    return {name: _make(name, shape, config, seed) for name, shape in _shapes(config)}


def safetensors_bytes(tensors: Mapping[str, Made]) -> bytes:
    """A safetensors file with the tensors in the order of their names."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, made in sorted(tensors.items()):
        end = at + len(made.data)
        header[name] = {"dtype": made.dtype, "shape": made.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(made.data for _, made in sorted(tensors.items()))
    return struct.pack("<Q", len(text)) + text + body


def _shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    h = config["hidden_size"]
    yield "model.embed_tokens.weight", (config["vocab_size"], h)
    yield "model.norm.weight", (h,)
    for i, kind in enumerate(config["layer_types"]):
        mixer = _linear_shapes if kind == "linear_attention" else _full_shapes
        yield from _layer_shapes(config, f"model.layers.{i}.", mixer(config))
    yield "mtp.fc.weight", (h, 2 * h)
    for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        yield f"mtp.{norm}.weight", (h,)
    yield from _layer_shapes(config, "mtp.layers.0.", _full_shapes(config))


def _layer_shapes(
    config: Mapping[str, Any], at: str, mixer: Mapping[str, Shape]
) -> Iterator[tuple[str, Shape]]:
    h, inner = config["hidden_size"], config["intermediate_size"]
    yield at + "input_layernorm.weight", (h,)
    yield at + "post_attention_layernorm.weight", (h,)
    yield from ((at + name, shape) for name, shape in mixer.items())
    yield at + "mlp.gate_proj.weight", (inner, h)
    yield at + "mlp.up_proj.weight", (inner, h)
    yield at + "mlp.down_proj.weight", (h, inner)


def _linear_shapes(config: Mapping[str, Any]) -> dict[str, Shape]:
    h, heads = config["hidden_size"], config["linear_num_value_heads"]
    values = heads * config["linear_value_head_dim"]
    channels = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + values
    return {
        "linear_attn.in_proj_qkv.weight": (channels, h),
        "linear_attn.in_proj_z.weight": (values, h),
        "linear_attn.in_proj_b.weight": (heads, h),
        "linear_attn.in_proj_a.weight": (heads, h),
        "linear_attn.conv1d.weight": (channels, 1, config["linear_conv_kernel_dim"]),
        "linear_attn.A_log": (heads,),
        "linear_attn.dt_bias": (heads,),
        "linear_attn.norm.weight": (config["linear_value_head_dim"],),
        "linear_attn.out_proj.weight": (h, values),
    }


def _full_shapes(config: Mapping[str, Any]) -> dict[str, Shape]:
    h, d = config["hidden_size"], config["head_dim"]
    queries, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    return {
        "self_attn.q_proj.weight": (2 * queries, h),
        "self_attn.k_proj.weight": (kv, h),
        "self_attn.v_proj.weight": (kv, h),
        "self_attn.o_proj.weight": (h, queries),
        "self_attn.q_norm.weight": (d,),
        "self_attn.k_norm.weight": (d,),
    }


def _make(name: str, shape: Shape, config: Mapping[str, Any], seed: int) -> Made:
    noise = _noise(f"{seed}/{name}", shape)
    if name.endswith("A_log"):  # decay rates from 0.05 to 2 per unit of dt
        return _float32(np.linspace(math.log(0.05), math.log(2.0), shape[0]))
    if name.endswith("dt_bias"):  # softplus of these: dt from 0.0025 to 0.13
        return _float32(np.linspace(-6.0, -2.0, shape[0]))
    if name.endswith("linear_attn.norm.weight"):
        return _float32(1.0 + 0.1 * noise)
    if name.endswith("norm.weight"):
        return _bfloat16(0.1 * noise)
    if name.endswith("embed_tokens.weight"):
        return _bfloat16(EMBEDDING_STD * noise)
    if name.endswith("conv1d.weight"):
        return _bfloat16(noise / math.sqrt(shape[-1]))
    return _bfloat16(MATRIX_GAIN * noise / math.sqrt(shape[-1]))


def _noise(key: str, shape: Shape) -> np.ndarray:
    """Uniform noise of mean 0 and variance 1, [*shape] float64."""
    state = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest(), "little")
    bits = np.random.PCG64(state).random_raw(math.prod(shape))
    unit = (bits >> np.uint64(11)) * 2.0**-53
    return ((unit - 0.5) * math.sqrt(12.0)).reshape(shape)


def _float32(values: np.ndarray) -> Made:
    return Made("F32", values.shape, values.astype("<f4").tobytes())


def _bfloat16(values: np.ndarray) -> Made:
    bits = values.astype("<f4").view("<u4")
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even
    return Made("BF16", values.shape, (rounded >> 16).astype("<u2").tobytes())
