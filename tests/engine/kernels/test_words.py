"""Integers that are sent to the device."""

import pytest
import torch

from tests.engine.kernels.compare import CUDA

from flashrt.engine.kernels.words import SLOTS, Words  # isort: skip

pytestmark = pytest.mark.gpu


def test_each_launch_reads_the_words_sent_before_it():
    """Also where many are sent while the device is busy."""
    words = Words(3, CUDA)
    busy = torch.randn(4096, 4096, device=CUDA)
    seen = []
    for i in range(5 * SLOTS):
        busy = (busy @ busy).clamp(-1, 1)
        words.send((i, -i))
        seen.append(words.device_words.clone())

    assert [x.tolist() for x in seen] == [[i, -i, 0] for i in range(5 * SLOTS)]
