"""Packed weights as plain bfloat16 ones, for products of long blocks by the library.

Reference: `flashrt.engine.forms`, each form's `dense`, whose bits these are.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.forms import SPAN, Form, Int4
from flashrt.engine.kernels.chain import FOLLOWING, let_follow, wait
from flashrt.engine.kernels.packed import FP8_BLOCKS, FP8_ROWS, NVFP4, Read

TILE, WORDS = 16, 64


@triton.jit
def _e4m3(bits):
    """What the lowest eight bits mean, in float32."""
    r = ((bits & 0x80) << 8) | ((bits & 0x7F) << 4)
    return r.to(tl.int16).to(tl.bfloat16, bitcast=True).to(tl.float32) * (2.0**120)


@triton.jit
def _e2m1(bits):
    """What the lowest four bits mean, in float32."""
    r = ((bits & 8) << 12) | ((bits & 7) << 6)
    return r.to(tl.int16).to(tl.bfloat16, bitcast=True).to(tl.float32) * (2.0**126)


@triton.jit
def _number(w, scale, zero, whole, place: tl.constexpr, FORM: tl.constexpr, PAIRS: tl.constexpr):
    """One of each word's numbers, rounded as by the reference."""
    if PAIRS == 2:
        value = _e4m3((w >> (8 * place)) & 0xFF) * scale
    elif FORM == NVFP4:
        value = _e2m1((w >> (4 * place)) & 15) * scale * whole
    else:
        value = (((w >> (4 * place)) & 15) - zero).to(tl.float32) * scale
    return value.to(tl.bfloat16)


@triton.jit
def _dense(
    W, SCALE, ZERO, ROW_SCALE, Y, N, K, WORDS_K, SCALES_K, FIRST, FORM: tl.constexpr,
    PAIRS: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Y[n, k], for some rows and words of W."""
    wait()
    EACH: tl.constexpr = 2 * PAIRS
    n = tl.program_id(0) * TILE + tl.arange(0, TILE)
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    live = (n < N)[:, None] & (word < WORDS_K)[None, :]
    w = tl.load(W + n[:, None].to(tl.int64) * WORDS_K + word[None, :], mask=live, other=0)
    group = word * EACH // GROUP
    zero, whole = 0, 1.0
    if FORM == FP8_BLOCKS:
        at = ((FIRST + n) // GROUP * SCALES_K)[:, None] + group[None, :]
        scale = tl.load(SCALE + at, mask=live, other=0.0)
    elif FORM == FP8_ROWS:
        scale = tl.load(ROW_SCALE + n, mask=n < N)[:, None]
    else:
        at = n[:, None] * SCALES_K + group[None, :]
        scale = tl.load(SCALE + at, mask=live, other=0)
        if FORM == NVFP4:
            scale = _e4m3(scale.to(tl.int32))
            whole = tl.load(ROW_SCALE + n, mask=n < N)[:, None]
        else:
            scale = scale.to(tl.float32)
            zero = tl.load(ZERO + at, mask=live, other=0).to(tl.int32)
    let_follow()
    if PAIRS == 2:
        first = tl.join(_number(w, scale, zero, whole, 0, FORM, PAIRS),
                        _number(w, scale, zero, whole, 1, FORM, PAIRS))  # fmt: skip
        second = tl.join(_number(w, scale, zero, whole, 2, FORM, PAIRS),
                         _number(w, scale, zero, whole, 3, FORM, PAIRS))  # fmt: skip
        y = tl.permute(tl.join(first, second), (0, 1, 3, 2))
    else:
        pair0 = tl.join(_number(w, scale, zero, whole, 0, FORM, PAIRS),
                        _number(w, scale, zero, whole, 4, FORM, PAIRS))  # fmt: skip
        pair1 = tl.join(_number(w, scale, zero, whole, 1, FORM, PAIRS),
                        _number(w, scale, zero, whole, 5, FORM, PAIRS))  # fmt: skip
        pair2 = tl.join(_number(w, scale, zero, whole, 2, FORM, PAIRS),
                        _number(w, scale, zero, whole, 6, FORM, PAIRS))  # fmt: skip
        pair3 = tl.join(_number(w, scale, zero, whole, 3, FORM, PAIRS),
                        _number(w, scale, zero, whole, 7, FORM, PAIRS))  # fmt: skip
        quads = tl.join(tl.join(pair0, pair1), tl.join(pair2, pair3))
        y = tl.permute(quads, (0, 1, 4, 3, 2))
    y = tl.reshape(y, (TILE, EACH * WORDS))
    k = tl.program_id(1) * (EACH * WORDS) + tl.arange(0, EACH * WORDS)
    at = n[:, None].to(tl.int64) * K + k[None, :]
    tl.store(Y + at, y, mask=(n < N)[:, None] & (k < K)[None, :])


@triton.jit
def _dense_wide(
    W, PAIRS, Y, N, K, STEP, GROUP: tl.constexpr, HALF: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Y[n, k] of one SPAN of some rows of int4."""
    wait()
    n = tl.program_id(0) * TILE + tl.arange(0, TILE)
    span = tl.program_id(1)
    byte = tl.arange(0, 128)
    live = (n < N)[:, None]
    at = n[:, None].to(tl.int64) * (K // 2) + span * 128 + byte[None, :]
    w = tl.load(W + at, mask=live, other=0).to(tl.int32)
    let_follow()
    for half in tl.static_range(2):
        pair = tl.load(PAIRS + (span * 256 + half * 128) // GROUP * STEP + n, mask=n < N, other=0)
        scale = pair >> 16
        if HALF:
            scale = scale.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        else:
            scale = (pair & -65536).to(tl.float32, bitcast=True)
        zero = (pair << 16).to(tl.float32, bitcast=True)
        value = (((w >> (4 * half)) & 15).to(tl.float32) - zero[:, None]) * scale[:, None]
        k = span * 256 + half * 128 + byte
        tl.store(Y + n[:, None].to(tl.int64) * K + k[None, :], value.to(tl.bfloat16), mask=live)


def _made_dense(form: Int4, pairs: Tensor, into: Tensor) -> None:
    n, k = len(form.weight), form.columns
    _dense_wide[(triton.cdiv(n, TILE), k // SPAN)](
        form.weight.view(torch.uint8), pairs, into, n, k, pairs.stride(0),
        GROUP=k // len(pairs), HALF=form.scale.dtype == torch.float16, TILE=TILE, num_warps=4,
        **FOLLOWING,
    )  # fmt: skip


def dense(form: Form, into: Tensor) -> Tensor:
    """[N, K] bfloat16 in the first rows of `into` [>= N, K]."""
    if isinstance(form, Int4) and form.pairs is not None:
        _made_dense(form, form.pairs, into)
        return into[: len(form.weight)]
    read = Read.of(form)
    n, k = len(form.weight), form.columns
    if into.dtype != torch.bfloat16:
        raise TypeError(f"made dense is bfloat16, not {into.dtype}")
    constants = {name: read.constants(1)[name] for name in ("FORM", "PAIRS", "GROUP")}
    count = read.words.shape[1]
    _dense[(triton.cdiv(n, TILE), triton.cdiv(count, WORDS))](
        *read.tensors, into, n, k, count, read.scale.shape[-1], read.first,
        **constants, TILE=TILE, WORDS=WORDS, num_warps=4, **FOLLOWING,
    )  # fmt: skip
    return into[:n]
