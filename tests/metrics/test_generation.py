"""How decode went: its steps, and what became of drafts."""

from hypothesis import given
from hypothesis import strategies as st

from flashrt.metrics.generation import DraftStats, GenerationStats
from tests.metrics.records import drafting


def test_drafts_are_counted_over_the_steps_that_had_one():
    """A step without a draft says nothing about drafts, so it changes no figure but its own."""
    report = drafting().report()

    assert report["decode_steps"] == 4
    assert (report["spec_attempts"], report["spec_accepts"]) == (15, 9)
    assert report["accept_length"] == round((4 + 5 + 2) / 3, 3)
    assert report["accepted_per_position"] == [3, 2, 2, 1, 1]


def test_each_drafter_has_its_own_figures():
    """A quotation must not make the MTP layer look good."""
    assert drafting().report()["drafters"] == {
        "mtp": {"spec_attempts": 6, "spec_accepts": 4, "accept_length": 3.0},
        "lookup": {"spec_attempts": 9, "spec_accepts": 5, "accept_length": 5.0},
    }


def test_without_drafts_there_is_no_accept_length():
    """None, not 1: nothing was tried."""
    stats = GenerationStats()
    stats.count(tokens=1, drafted=0, accepted=0, drafter="")

    assert stats.report() == {
        "decode_steps": 1,
        "spec_attempts": 0,
        "spec_accepts": 0,
        "accept_length": None,
        "accepted_per_position": [],
        "drafters": {},
    }


steps = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["mtp", "lookup"])), max_size=12
)


@given(steps, st.integers(0, 12))
def test_the_aggregate_is_the_same_however_steps_fall_into_requests(steps, cut):
    """/health adds up what the records say, position by position."""
    whole, total = GenerationStats(), GenerationStats()
    for part in (steps[:cut], steps[cut:]):
        request = GenerationStats()
        for accepted, rejected, drafter in part:
            step = (accepted + 1, accepted + rejected, accepted, drafter)
            request.count(*step)
            whole.count(*step)
        total.add(request)

    assert total == whole
    drafts = sum(accepted for accepted, _, _ in steps)
    assert sum(total.report()["accepted_per_position"]) == drafts
    assert DraftStats().accept_length is None
