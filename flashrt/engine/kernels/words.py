"""Small integers for the device, sent without waiting for them to arrive."""

from collections.abc import Sequence

import torch
from torch import Tensor

SLOTS = 4
"""Sends that may be under way at once."""


class Words:
    """int32 words on the device, and pinned memory that they are sent from."""

    def __init__(self, count: int, device: torch.device) -> None:
        """Zeros."""
        self.device_words: Tensor = torch.zeros(count, dtype=torch.int32, device=device)
        self._hosts = [torch.zeros(count, dtype=torch.int32).pin_memory() for _ in range(SLOTS)]
        self._arrays = [host.numpy() for host in self._hosts]
        self._sent = [torch.cuda.Event() for _ in range(SLOTS)]
        self._turn = 0

    def send(self, values: Sequence[int]) -> None:
        """The first words become `values`, before whatever is launched next."""
        turn, count = self._turn, len(values)
        # Its memory may still be read by the send before it.
        self._sent[turn].synchronize()
        self._arrays[turn][:count] = values
        self.device_words[:count].copy_(self._hosts[turn][:count], non_blocking=True)
        self._sent[turn].record()
        self._turn = (turn + 1) % SLOTS
