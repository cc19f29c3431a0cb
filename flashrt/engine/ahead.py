"""Greedy ids without drafts: the device goes one row ahead of the host.

The next row begins with the id that the last one chose, where it lies in the device's memory; the
host reads that id meanwhile. A row ahead is what the row of an unverified draft is: it stands
behind the position, counts as soon as the host asks for just this id there, and is dropped by
lengths otherwise.
"""

import numpy as np
import torch
from torch import Tensor

from flashrt.engine.linear import ROWS_MAX
from flashrt.engine.live import LiveState
from flashrt.engine.sampler import Shortlist


class Likeliest:
    """The best ids of rows: on the device at once, on the host when they have come."""

    def __init__(self, device: torch.device) -> None:
        """Pinned memory for the ids of a GPU."""
        on_gpu = device.type == "cuda"
        self._ids = torch.zeros(ROWS_MAX, dtype=torch.int64, pin_memory=on_gpu)
        self._scores = torch.zeros(ROWS_MAX, dtype=torch.float32, pin_memory=on_gpu)
        self._sent = torch.cuda.Event() if on_gpu else None
        self._count = 0

    def of(self, live: LiveState, count: int, limit: int, ahead: bool) -> list[Shortlist | None]:
        """The best ids below `limit` of the newest rows, None of a broken one; `ahead`: the device
        goes on with the one row's id before the host has read it."""
        scores, ids = live.best_of(count, limit)
        self.send(scores, ids)
        if ahead:
            live.run_ahead(ids)
        found = self.read()
        if ahead and (newest := found[0]) is not None:
            live.ahead = int(newest[0][0])
        return found

    @torch.inference_mode()
    def send(self, scores: Tensor, ids: Tensor) -> None:
        """Begin to send the best scores [R <= 64] float32 and their ids [R] int64.

        One step at a time: its rows must be read before the next are sent.
        """
        self._count = len(ids)
        self._ids[: self._count].copy_(ids, non_blocking=True)
        self._scores[: self._count].copy_(scores, non_blocking=True)
        if self._sent:
            self._sent.record()

    def read(self) -> list[Shortlist | None]:
        """What was sent, waiting for nothing that was launched behind it; None of a broken row."""
        if self._sent:
            self._sent.synchronize()
        ids = self._ids[: self._count].numpy().copy()
        scores = self._scores[: self._count].double().numpy()
        return [
            (ids[row : row + 1], scores[row : row + 1]) if np.isfinite(scores[row]) else None
            for row in range(self._count)
        ]
