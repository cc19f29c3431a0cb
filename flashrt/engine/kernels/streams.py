"""Whether a model's layers go as one launch each (`streamed`), or launch by launch.

Imports no Triton itself: the language of `stream` is experimental and changes from one version to
the next, so what was written for one is not even read by another.
"""

import importlib.metadata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from flashrt.engine.matrix import Matrix
from flashrt.engine.mixers import FullMixer, LinearMixer
from flashrt.engine.model import Layer

if TYPE_CHECKING:
    from flashrt.engine.kernels.plain import Rows

HOPPER = (9, 0)
"""The one kind of device whose matrix unit and copy engine the kernel speaks to."""

TRITON = "3.6."
"""The one version whose language it is written in."""


class Streams(Protocol):
    """The layers of a model that go as one launch each."""

    def start(self) -> None:
        """Before the first layer of a pass."""

    def take(self, number: int) -> bool:
        """Whether a layer goes this way."""

    def run(self, number: int, x: Tensor, mixed: "Rows") -> Tensor | None:
        """See `streamed.Streamed.run`, of a layer that is taken."""


class NoStreams:
    """All layers go launch by launch."""

    def start(self) -> None:
        """Nothing to do."""

    def take(self, number: int) -> bool:
        """None is."""
        return False

    def run(self, number: int, x: Tensor, mixed: "Rows") -> Tensor | None:
        """Raises LookupError: none is taken."""
        raise LookupError(f"layer {number} goes launch by launch")


def streams_of(layers: Sequence[Layer], device: torch.device) -> Streams:
    """For a model's layers in order, on a device."""
    if not can_stream(device):
        return NoStreams()
    from flashrt.engine.kernels import streamed

    return streamed.Streams.of(layers, device)


def can_stream(device: torch.device) -> bool:
    """Whether the kernel runs here."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != HOPPER:
        return False
    return importlib.metadata.version("triton").startswith(TRITON)


def first_of(mixer: FullMixer | LinearMixer) -> Matrix:
    """What a layer's normed rows are multiplied with first."""
    if isinstance(mixer, LinearMixer):
        return mixer.weights.in_proj
    return mixer.weights.qkv_proj


def out_of(mixer: FullMixer | LinearMixer) -> Matrix:
    """What a layer's mixed rows are multiplied with at last."""
    if isinstance(mixer, LinearMixer):
        return mixer.weights.out_proj
    return mixer.weights.o_proj
