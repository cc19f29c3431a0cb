"""The choice of ids: greedy, and drawn with noise that is keyed by seed, position and id."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.protocol import EngineMisuse, SamplingParams
from flashrt.engine.sampler import JournalCounts, NoFiniteLogits, Sampler, gumbel

V = 12
LOGITS = torch.tensor([0.1, 2.0, -1.0, 2.0, 0.5, 1.5, -0.3, 0.0, 1.0, -2.0, 0.7, 1.2])


def choose(
    logits: torch.Tensor = LOGITS,
    *,
    journal: list[int] | None = None,
    allowed: Any = None,
    sampleable: int | None = None,
    **params: Any,
) -> int:
    """One choice by a fresh sampler."""
    sampler = Sampler(len(logits), sampleable)
    return sampler.choose(logits, SamplingParams(**params), journal=journal or [0], allowed=allowed)


def drawn(draws: int, logits: torch.Tensor = LOGITS, **params: Any) -> np.ndarray:
    """How often each id is chosen, over as many positions."""
    sampler, wanted = Sampler(len(logits)), SamplingParams(**params)
    got = Counter(
        sampler.choose(logits, wanted, journal=range(position), allowed=None)
        for position in range(1, draws + 1)
    )
    return np.array([got[i] for i in range(len(logits))])


def mask_of(*ids: int, size: int = V) -> np.ndarray:
    """Only these ids are allowed."""
    mask = np.zeros(size, bool)
    mask[list(ids)] = True
    return mask


def scores_of(seed: int, size: int = V) -> torch.Tensor:
    """Random logits with many ties."""
    return torch.randint(-4, 5, (size,), generator=torch.Generator().manual_seed(seed)).float() / 2


# Greedy


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40))
def test_greedy_takes_the_best_and_of_equals_the_lowest(values):
    """Ties are decided by id."""
    assert choose(torch.tensor(values).float()) == int(np.argmax(values))


@pytest.mark.parametrize("size", [8225, 100_003])
def test_ties_go_to_the_lowest_id_in_large_rows_too(size):
    """However the reduction is cut up."""
    row = torch.zeros(size)
    assert choose(row) == 0
    row[[size - 1, size // 2, size // 3]] = 1.0
    assert choose(row) == size // 3


# Noise


def test_noise_is_pinned():
    """A change of the generator would change every seeded text: these numbers never move."""
    noise = gumbel(7, 100, np.array([0, 1, 248_319]))
    pinned = [-0.2236953221902341, 0.13186127467568393, -1.094147747099294]
    assert noise.tolist() == pytest.approx(pinned, abs=1e-12)


@given(
    st.integers(-(2**63), 2**64),
    st.integers(0, 2**31),
    st.lists(st.integers(0, 300_000), min_size=1, max_size=50, unique=True),
)
def test_the_noise_of_an_id_never_depends_on_the_other_ids(seed, position, ids):
    """Alone or among any candidates, in any order."""
    together = gumbel(seed, position, np.array(ids))
    alone = [float(gumbel(seed, position, np.array([i]))[0]) for i in ids]
    assert together.tolist() == alone
    assert np.isfinite(together).all()


def test_noise_is_gumbel_and_independent_over_ids_positions_and_seeds():
    """Mean 0.5772, variance 1.6449, and no correlation with any neighbour."""
    ids = np.arange(2000)
    table = np.array([[gumbel(seed, p, ids) for p in range(20)] for seed in range(5)])
    assert table.mean() == pytest.approx(0.5772, abs=0.01)
    assert table.var() == pytest.approx(np.pi**2 / 6, abs=0.03)
    centred = table - table.mean()
    for axis in range(3):
        neighbour = np.roll(centred, 1, axis)
        assert abs((centred * neighbour).mean()) < 0.02


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature):
    """Chi-square over 4,000 positions; 31.3 is the 0.1 % border for 11 degrees of freedom."""
    draws = 4000
    expected = torch.softmax(LOGITS.double() / temperature, 0).numpy() * draws
    counts = drawn(draws, temperature=temperature, seed=3)
    assert ((counts - expected) ** 2 / expected).sum() < 31.3


def test_another_seed_is_another_text_and_the_same_seed_the_same():
    """The noise has no state: order and repetition of calls do not matter."""
    sampler = Sampler(V)

    def text(seed: int, positions: range) -> list[int]:
        params = SamplingParams(temperature=1.0, seed=seed)
        return [sampler.choose(LOGITS, params, journal=range(p), allowed=None) for p in positions]

    forward = text(1, range(1, 60))
    assert text(1, range(59, 0, -1))[::-1] == forward
    assert text(2, range(1, 60)) != forward


@given(st.integers(0, 10_000), st.integers(1, 500), st.integers(0, 99))
def test_limits_never_change_the_winner_that_they_leave(seed, position, row):
    """If the unlimited choice is within top_k, top_p, min_p, mask or a forced id, it stays."""
    logits, journal = scores_of(row), [0] * position
    free = choose(logits, journal=journal, temperature=1.0, seed=seed)
    ranked = np.argsort(-logits.numpy(), kind="stable").tolist()
    rank = ranked.index(free)
    for limits in (
        {"top_k": rank + 1},
        {"top_p": 0.999999},
        {"min_p": 1e-6},
        {"allowed": mask_of(free, 1, 7)},
        {"allowed": free},
    ):
        again = choose(logits, journal=journal, temperature=1.0, seed=seed, **limits)
        assert again == free


# Limits


@given(st.integers(0, 99), st.integers(1, V), st.integers(0, 50))
def test_top_k_leaves_k_ids_and_cuts_ties_by_id(row, k, seed):
    """The choice equals a choice among exactly the k first of (score, lowest id)."""
    logits = scores_of(row)
    ranked = np.argsort(-logits.numpy(), kind="stable")[:k]
    limited = choose(logits, temperature=1.5, seed=seed, top_k=k)
    assert limited == choose(logits, temperature=1.5, seed=seed, allowed=mask_of(*ranked))


def nucleus(logits: torch.Tensor, temperature: float, top_p: float) -> list[int]:
    """The definition, in plain Python."""
    probabilities = torch.softmax(logits.double() / temperature, 0).tolist()
    kept, mass = [], 0.0
    for i in sorted(range(len(probabilities)), key=lambda i: (-probabilities[i], i)):
        if kept and mass >= top_p:
            break
        kept.append(i)
        mass += probabilities[i]
    return kept


@given(st.integers(0, 99), st.floats(0.0, 0.999), st.integers(0, 50))
def test_top_p_leaves_the_fewest_ids_that_reach_it(row, top_p, seed):
    """At least one; the id that crosses the border is in; after temperature."""
    logits = scores_of(row)
    limited = choose(logits, temperature=0.7, seed=seed, top_p=top_p)
    kept = nucleus(logits, 0.7, top_p)
    assert limited == choose(logits, temperature=0.7, seed=seed, allowed=mask_of(*kept))


@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_top_p_is_the_same_by_the_short_way_and_by_sorting_all(spread):
    """A vocabulary larger than the first try, with flat and with steep rows."""
    size = 5000
    logits = torch.randn(size, generator=torch.Generator().manual_seed(5)) * spread
    for seed in range(20):
        limited = choose(logits, temperature=1.0, seed=seed, top_p=0.9)
        mask = mask_of(*nucleus(logits, 1.0, 0.9), size=size)
        assert limited == choose(logits, temperature=1.0, seed=seed, allowed=mask)


@given(st.integers(0, 99), st.floats(0.001, 1.0), st.integers(0, 50))
def test_min_p_leaves_ids_with_that_share_of_the_best(row, min_p, seed):
    """An id whose probability is exactly at the border is in (checked away from rounding)."""
    logits = scores_of(row)
    share = torch.exp(logits.double() - logits.max()).numpy()
    if np.abs(share - min_p).min() < 1e-9:
        return
    kept = np.flatnonzero(share >= min_p)
    limited = choose(logits, temperature=1.0, seed=seed, min_p=min_p)
    assert limited == choose(logits, temperature=1.0, seed=seed, allowed=mask_of(*kept))


def test_min_p_one_keeps_all_that_are_best():
    """Equal best ids stay in play."""
    counts = drawn(200, temperature=1.0, min_p=1.0)
    assert counts[[1, 3]].sum() == 200
    assert counts[1] > 50
    assert counts[3] > 50


def test_limits_apply_in_their_order():
    """top_k, then top_p of the mass that it left, then min_p, which takes no mass from top_p."""
    logits = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1]))

    def left(**limits: float) -> list[int]:
        return np.flatnonzero(drawn(300, logits, temperature=1.0, **limits)).tolist()

    assert left(top_k=2, top_p=0.57) == [0]
    assert left(top_p=0.57) == [0, 1]
    assert left(top_p=0.57, min_p=0.6) == [0, 1]
    assert left(top_p=0.75, min_p=0.49) == [0, 1, 2]
    assert left(top_p=0.75, min_p=0.6) == [0, 1]


def test_a_tiny_temperature_is_greedy():
    """No overflow on the way."""
    for temperature in (1e-3, 1e-30, 5e-324):
        assert choose(LOGITS + torch.arange(V) * 1e-3, temperature=temperature) == 3


# Constraints


def test_a_forced_id_is_the_choice_whatever_the_logits():
    """Also with noise, and also if it is the least likely."""
    assert choose(allowed=9) == 9
    assert choose(allowed=9, temperature=1.0, top_k=1) == 9


@given(st.sets(st.integers(0, V - 1), min_size=1), st.integers(0, 50))
def test_a_mask_is_never_left(ids, seed):
    """Greedy takes the best of it; a draw stays in it, also if top_k is larger."""
    mask = mask_of(*ids)
    assert choose(allowed=mask) == min(ids, key=lambda i: (-float(LOGITS[i]), i))
    assert choose(allowed=mask, temperature=5.0, seed=seed) in ids
    assert choose(allowed=mask, temperature=5.0, seed=seed, top_k=8, top_p=0.9, min_p=0.01) in ids


def test_padding_ids_are_never_chosen():
    """They are masked in every way of choosing, and a mask cannot bring them back."""
    row = torch.zeros(V)
    row[9:] = 100.0
    assert choose(row, sampleable=9) == 0
    for seed in range(50):
        assert choose(row, sampleable=9, temperature=9.0, seed=seed, top_k=11) < 9
    assert choose(row, sampleable=9, allowed=mask_of(4, 10)) == 4
    assert choose(row, sampleable=9, logit_bias={10: 100.0, 2: 1.0}) == 2
    assert choose(row, sampleable=9, journal=[10, 11, 0], presence_penalty=1.0) == 1


@pytest.mark.parametrize(
    "allowed",
    [np.zeros(V, bool), mask_of(10, 11), -1, 10, V, np.ones(V - 1, bool), np.ones(V, np.int64)],
    ids=["nothing", "only padding", "negative", "padding", "beyond", "short", "no bools"],
)
def test_a_constraint_that_cannot_be_met_is_a_misuse(allowed):
    """No id is made up."""
    with pytest.raises(EngineMisuse):
        choose(allowed=allowed, sampleable=10)


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 3}])
def test_broken_logits_choose_nothing(params):
    """NaN anywhere, infinity, or nothing possible is an error, not a token."""
    for value in (torch.nan, torch.inf):
        row = LOGITS.clone()
        row[5] = value
        with pytest.raises(NoFiniteLogits):
            choose(row, **params)
    with pytest.raises(NoFiniteLogits):
        choose(torch.full((V,), -torch.inf), **params)
    with pytest.raises(EngineMisuse, match="probability 0"):
        choose(torch.full((V,), -torch.inf), allowed=mask_of(3), **params)


def test_a_row_of_another_size_is_a_misuse():
    """The sampler belongs to one vocabulary."""
    with pytest.raises(EngineMisuse):
        Sampler(V + 1).choose(LOGITS, SamplingParams(), journal=[0], allowed=None)


# Penalties and biases


def penalised(logits: torch.Tensor, params: SamplingParams, journal: list[int]) -> np.ndarray:
    """The definition, in plain Python: repetition, presence and frequency, bias."""
    scores = logits.double().tolist()
    answer = Counter(journal[params.output_start :])
    for i in set(journal):
        old = scores[i]
        scores[i] = old / params.repetition_penalty if old > 0 else old * params.repetition_penalty
    for i, times in answer.items():
        scores[i] -= params.presence_penalty + params.frequency_penalty * times
    for i, bias in params.logit_bias.items():
        if i < V:
            scores[i] += bias
    return np.array(scores)


journals = st.lists(st.integers(0, V - 1), min_size=1, max_size=60)


@given(
    st.lists(journals, min_size=1, max_size=4),
    st.integers(0, 40),
    st.sampled_from([0.0, 0.5, -1.0]),
    st.sampled_from([0.0, 0.25, -0.1]),
    st.sampled_from([1.0, 1.5, 0.8]),
    st.dictionaries(st.integers(0, V + 3), st.sampled_from([-100.0, -1.0, 0.75]), max_size=3),
)
def test_penalties_are_exact_for_any_sequence_of_journals(
    tails, start, presence, frequency, repetition, bias
):
    """One sampler sees journals that grow, shrink and branch; a fresh count gives the same."""
    params = SamplingParams(
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=repetition,
        logit_bias=bias,
        output_start=start,
    )
    sampler = Sampler(V)
    for tail in tails:
        for journal in (tails[0] + tail, (tails[0] + tail)[:-1] or [1], tail):
            for logits in (LOGITS, LOGITS - 3.0):
                wanted = int(np.argmax(penalised(logits, params, journal)))
                got = sampler.choose(logits, params, journal=journal, allowed=None)
                assert got == wanted


def test_a_repeated_id_becomes_less_likely_whatever_the_sign_of_its_score():
    """The repetition penalty divides scores above 0 and multiplies those below."""
    for best, second in ((2.0, 1.9), (-1.0, -1.05)):
        row = torch.tensor([best, second])
        assert choose(row, journal=[0]) == 0
        assert choose(row, journal=[0], repetition_penalty=1.1) == 1


@given(st.lists(st.tuples(journals, st.integers(0, 70)), min_size=1, max_size=6))
def test_counts_equal_counting_anew(shown):
    """Whatever was shown before, whatever the start of the answer was."""
    counts = JournalCounts(V)
    for journal, start in shown:
        counts.show(journal, start)
        ids, times = counts.answered()
        assert dict(zip(ids.tolist(), times.tolist(), strict=True)) == Counter(journal[start:])
        assert counts.seen().tolist() == sorted(set(journal))


def test_a_journal_that_is_changed_in_place_is_counted_anew():
    """The engine's list is the same object before and after a rollback."""
    journal = [1, 3, 1, 1]
    counts = JournalCounts(V)
    counts.show(journal, 1)
    del journal[2:]
    journal += [5]
    counts.show(journal, 1)
    ids, times = counts.answered()
    assert (ids.tolist(), times.tolist()) == ([3, 5], [1, 1])


def test_a_bias_can_forbid_and_force():
    """-100 and +100 are out of reach of these logits; ids beyond the vocabulary move nothing."""
    assert choose(logit_bias={1: -100.0}) == 3
    assert choose(logit_bias={9: 100.0, 10**6: 5.0}) == 9
    assert drawn(100, temperature=1.0, logit_bias={9: 100.0})[9] == 100


# Logprobs


@given(st.integers(0, 999), st.integers(0, V), st.integers(0, V - 1))
def test_logprobs_are_the_log_softmax_of_the_raw_row(seed, count, chosen):
    """Whatever limits the choice; the likeliest come first, of equals the lowest id."""
    row = scores_of(seed)
    told = Sampler(V).logprobs(row, chosen, count)
    wanted = torch.log_softmax(row.double(), 0)
    assert told.chosen == pytest.approx(float(wanted[chosen]), abs=1e-12)
    order = sorted(range(V), key=lambda i: (-float(wanted[i]), i))[:count]
    assert [i for i, _ in told.top] == order
    assert [v for _, v in told.top] == pytest.approx([float(wanted[i]) for i in order], abs=1e-12)


def test_ids_that_belong_to_no_token_have_no_share():
    """The rest of the row sums to one."""
    told = Sampler(V, 5).logprobs(LOGITS, 1, V)
    assert [i for i, _ in told.top] == [1, 3, 4, 0, 2]
    assert sum(np.exp(v) for _, v in told.top) == pytest.approx(1.0)
