"""The same model by transformers."""

import pytest

from flashrt.bench.engine import peers, transformers_peer
from tests.bench.engine.subjects import subject

IDS = 8


@pytest.mark.parametrize("shape", ["tiny", pytest.param("tiny-moe", marks=pytest.mark.slow)])
def test_it_is_the_same_model_over_the_same_memory(shape):
    """In float32 it chooses the ids that our engine chooses, and no weight is held twice."""
    ours = subject(shape)
    peer = transformers_peer.over(ours.config, ours.tensors, ours.dtype, ours.clock)
    prompt = ours.ids(70)

    ids, times = peer.run(prompt, IDS)

    assert ids == peers.run(ours, prompt, IDS)[0]
    assert len(times) == IDS
    assert all(ms > 0 for ms in times)
    assert peer.model.lm_head.weight.data_ptr() == ours.weights.lm_head.data_ptr()
    assert peer.name.startswith("transformers 5.")
