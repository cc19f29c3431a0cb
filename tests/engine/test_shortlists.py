"""The ids that a choice is made of, fetched for many rows at once."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.protocol import SamplingParams
from flashrt.engine.sampler import TIES, NoFiniteLogits, Sampler

V = 61
ROWS = st.lists(st.integers(0, 2**31), min_size=1, max_size=5)


def rows_of(seeds: list[int], levels: int) -> torch.Tensor:
    """Random rows [R, V] of so many different scores: many ties where there are few."""
    return torch.stack([
        torch.randint(levels, (V,), generator=torch.Generator().manual_seed(seed)).float() / 3
        for seed in seeds
    ])  # fmt: skip


@given(
    ROWS, st.sampled_from((2, 9, 10_000)), st.integers(0, V), st.sampled_from((0.0, 0.4, 1.5)),
    st.sampled_from((1.0, 0.7)), st.sampled_from((V, 50)),
)  # fmt: skip
def test_a_shortlist_changes_no_choice(seeds, levels, top_k, temperature, top_p, sampleable):
    """A mask that allows all goes the way without one, row by row."""
    logits, sampler = rows_of(seeds, levels), Sampler(V, sampleable)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=7)
    everything = np.ones(V, bool)

    shortlists = sampler.shortlists(logits, params)

    for row, shortlist in zip(logits, shortlists, strict=True):
        got = sampler.choose(row, params, journal=[1, 2], allowed=None, shortlist=shortlist)
        assert got == sampler.choose(row, params, journal=[1, 2], allowed=everything)


def test_rows_without_ties_need_no_second_look():
    """What most rows are: as many ids as were asked for, ascending."""
    logits = rows_of([1, 2], 100_000)

    for top_k, temperature, count in ((20, 1.0, 20), (5, 0.7, 5), (20, 0.0, 1)):
        params = SamplingParams(temperature=temperature, top_k=top_k)
        for shortlist in Sampler(V).shortlists(logits, params):
            assert shortlist is not None
            assert len(shortlist[0]) == count
            assert list(shortlist[0]) == sorted(shortlist[0])


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=1.0, top_k=V - TIES + 1),
        SamplingParams(temperature=1.0, top_k=3, presence_penalty=0.5),
        SamplingParams(logit_bias={1: 2.0}),
    ],
    ids=["all ids", "nearly all", "penalties", "biases"],
)
def test_rows_that_need_more_have_none(params):
    """Where all ids count, or the journal or a bias has a say."""
    assert Sampler(V).shortlists(rows_of([1], 100), params) == [None]


def test_a_broken_row_has_none_and_fails_alone():
    """The others are chosen from."""
    logits = rows_of([1, 2, 3], 100_000)
    logits[1, 5] = torch.nan
    sampler, params = Sampler(V), SamplingParams(temperature=1.0, top_k=5)

    shortlists = sampler.shortlists(logits, params)

    assert [shortlist is None for shortlist in shortlists] == [False, True, False]
    with pytest.raises(NoFiniteLogits):
        sampler.choose(logits[1], params, journal=[1], allowed=None, shortlist=shortlists[1])


@pytest.mark.gpu
@pytest.mark.parametrize("count", [61, 5000, 248_320])
def test_of_equals_the_first_is_taken_on_a_device_too(count: int):
    """Wherever in the row they stand."""
    generator = torch.Generator().manual_seed(count)
    for _ in range(50):
        row = torch.randint(3, (count,), generator=generator).float()
        wanted = int((row == row.max()).nonzero()[0])
        shortlist = Sampler(count).shortlists(row[None].cuda(), SamplingParams())[0]
        assert shortlist is not None
        assert list(shortlist[0]) == [wanted]
