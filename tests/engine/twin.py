"""A second engine in the very state of a first one, also in what no capsule holds."""

import copy

import attrs
from torch import Tensor

from flashrt.engine.hybrid import HybridEngine


def twin_of(engine: HybridEngine, spare: HybridEngine) -> HybridEngine:
    """`spare`, an engine of the same weights, with every buffer and length of `engine`."""
    ours, theirs = engine._live, spare._live
    for name, buffer in attrs.asdict(ours.buffers, recurse=False).items():
        if isinstance(buffer, Tensor):
            getattr(theirs.buffers, name).copy_(buffer)
    theirs.position, theirs.anchor, theirs.floor = ours.position, ours.anchor, ours.floor
    theirs.ahead = ours.ahead
    theirs.rows = copy.deepcopy(ours.rows)
    if ours.mtp and theirs.mtp:
        theirs.mtp.filled, theirs.mtp.recent = ours.mtp.filled, list(ours.mtp.recent)
    spare._journal = list(engine._journal)
    return spare
