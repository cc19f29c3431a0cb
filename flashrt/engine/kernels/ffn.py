"""The feed-forward half of a layer by kernels: the one place that says which kind it is.

Reference: `flashrt.engine.ffn`. `at` [3] int32 says in its last word how many rows live.
"""

from torch import Tensor

from flashrt.engine.kernels.blocklinear import (
    BlockRows,
    block_linear_parts,
    block_silu_mul,
    takes_block_terms,
)
from flashrt.engine.kernels.experts import block_mixture, rows_mixture
from flashrt.engine.kernels.linear import rows_linear_parts, rows_silu_mul, takes_terms
from flashrt.engine.kernels.norm import HalfNorm
from flashrt.engine.kernels.plain import multiplied
from flashrt.engine.weights import FfnWeights, MlpWeights


def rows_ffn(x: HalfNorm, weights: FfnWeights, at: Tensor) -> Tensor:
    """Of at most 64 rows -> parts [P, M, h] float32, to be added in order; row-invariant."""
    if isinstance(weights, MlpWeights):
        return rows_linear_parts(rows_silu_mul(x, weights.gate_up), weights.down)
    return rows_mixture(x, weights, at)


def ffn_takes_terms(weights: FfnWeights) -> bool:
    """Whether its few rows are quicker with their terms."""
    return isinstance(weights, MlpWeights) and takes_terms(weights.gate_up)


def ffn_takes_block_terms(weights: FfnWeights, rows: int) -> bool:
    """Whether a block of so many is."""
    return isinstance(weights, MlpWeights) and takes_block_terms(weights.gate_up, rows)


def block_ffn(x: BlockRows, weights: FfnWeights, at: Tensor) -> Tensor:
    """Of a block x [T, h] bfloat16 -> parts [P, T, h], to be added in order."""
    if isinstance(weights, MlpWeights):
        return block_linear_parts(block_silu_mul(x, weights.gate_up), weights.down)
    return block_mixture(multiplied(x), weights, at)
