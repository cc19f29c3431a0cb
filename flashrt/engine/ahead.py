"""Greedy ids without drafts: the device goes one row ahead of the host.

The next row begins with the id that the last one chose, where it lies in the device's memory; the
host reads that id meanwhile. A row ahead is what the row of an unverified draft is: it stands
behind the position, counts as soon as the host asks for just this id there, and is dropped by
lengths otherwise.
"""

import torch
from torch import Tensor

from flashrt.engine.protocol import Constraint, SamplingParams
from flashrt.engine.sampler import Shortlist, takes_likeliest
from flashrt.engine.speculate import Drafting, NoDrafts


def device_chooses(
    drafting: Drafting, params: SamplingParams, constraint: Constraint | None
) -> bool:
    """Whether every step of such a decode is one row, and its id the row's best one, with nothing
    else to be read of it."""
    plain = constraint is None and params.logprobs is None
    return plain and takes_likeliest(params) and isinstance(drafting, NoDrafts)


class Likeliest:
    """The best id of one row of scores: on the device at once, on the host when it has come."""

    def __init__(self, device: torch.device) -> None:
        """Pinned memory for one id of a GPU."""
        on_gpu = device.type == "cuda"
        self._id = torch.zeros(1, dtype=torch.int64, pin_memory=on_gpu)
        self._score = torch.zeros(1, dtype=torch.float32, pin_memory=on_gpu)
        self._sent = torch.cuda.Event() if on_gpu else None

    @torch.inference_mode()
    def send(self, scores: Tensor) -> Tensor:
        """Begin to send the best of `scores` [1, V] float32; -> its id [1] int64 on their device.

        Of equals the lowest. One at a time: it must be read before the next is sent.
        """
        values, ids = scores.max(-1)
        self._id.copy_(ids, non_blocking=True)
        self._score.copy_(values, non_blocking=True)
        if self._sent:
            self._sent.record()
        return ids

    def read(self) -> Shortlist | None:
        """What was sent, waiting for nothing that was launched behind it; None of a broken row."""
        if self._sent:
            self._sent.synchronize()
        if not torch.isfinite(self._score):
            return None
        return self._id.numpy().copy(), self._score.double().numpy()
