"""Tensors as the copy engine of Hopper takes them, for the kernels in Gluon."""

from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

ROW_BYTES = 128
"""Of each row in a box: what shared memory takes in one piece."""


def described(tensor: Tensor, *box: int) -> TensorDescriptor:
    """[..., K] in boxes of so many rows, ROW_BYTES of each."""
    return _described(tensor, [*box, ROW_BYTES // tensor.element_size()], ROW_BYTES)


def described_numbers(tensor: Tensor, *box: int) -> TensorDescriptor:
    """Numbers of 32 bits in boxes, as they lie."""
    return _described(tensor, [*box], 0)


def _described(tensor: Tensor, box: list[int], swizzle: int) -> TensorDescriptor:
    bits = 8 * tensor.element_size()
    layout = gl.NVMMASharedLayout(
        swizzle_byte_width=swizzle, element_bitwidth=bits, rank=tensor.dim()
    )
    return TensorDescriptor.from_tensor(tensor, box, layout)
