"""Prompt lookup: what it proposes stands in the journal, and where."""

from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.drafting.lookup import NGRAM_MAX, NGRAM_MIN, PROPOSED_MAX, PromptLookup

journals = st.lists(st.integers(0, 2), max_size=120)
counts = st.integers(0, 70)


def searched(journal, count):
    """The same by trying every n-gram and every place."""
    count, end = min(count, PROPOSED_MAX), len(journal)
    for n in range(NGRAM_MAX, NGRAM_MIN - 1, -1):
        places = [at for at in range(n, end) if journal[at - n : at] == journal[end - n :]]
        if places and count > 0 and n < end:
            roomy = [at for at in places if at + count <= end]
            at = roomy[-1] if roomy else places[0]
            return tuple(journal[at : at + count])
    return ()


@given(journals, counts)
def test_it_proposes_what_a_plain_search_finds(journal, count):
    """The longest equal n-gram; its newest place with enough behind it, else its oldest."""
    assert PromptLookup().propose(journal, count) == searched(journal, count)


@st.composite
def histories(draw):
    """Journals as an engine has them one after the other: grown, rolled back, switched, edited."""
    journal, seen = draw(journals), []
    for _ in range(draw(st.integers(1, 8))):
        match draw(st.sampled_from(["grow", "grow", "roll back", "switch", "edit"])):
            case "grow":
                journal = journal + draw(st.lists(st.integers(0, 2), max_size=80))
            case "roll back":
                journal = journal[: len(journal) - draw(st.integers(0, 64))]
            case "switch":
                journal = draw(journals)
            case "edit":
                at = draw(st.integers(0, max(len(journal) - 1, 0)))
                journal = [*journal[:at], draw(st.integers(0, 2)), *journal[at + 1 :]]
        seen.append(journal)
    return seen


@given(histories(), counts)
def test_a_draft_follows_an_equal_n_gram_whatever_the_journal_was_before(history, count):
    """Rollbacks, switches and edits never raise, and never let a draft come from anywhere else."""
    lookup = PromptLookup()
    for journal in history:
        draft = lookup.propose(journal, count)
        newest, size = journal[-NGRAM_MIN:], len(draft)
        assert size <= min(count, PROPOSED_MAX) or not draft
        assert not draft or any(
            journal[at - NGRAM_MIN : at] == newest and tuple(journal[at : at + size]) == draft
            for at in range(NGRAM_MIN, len(journal) - size + 1)
        )


@given(histories())
def test_a_journal_that_was_rolled_back_or_switched_is_searched_as_new(history):
    """Where the newest 64 ids tell the journals apart, nothing of the old one is left."""
    lookup = PromptLookup()
    for before, journal in zip([[], *history], history, strict=False):
        lookup.propose(before, 8)
        at = len(before)
        if len(journal) < at or before[-64:] != journal[max(at - 64, 0) : at] or at <= 64:
            assert lookup.propose(journal, 8) == searched(journal, 8)


def test_a_journal_that_another_one_replaces_is_read_anew():
    """Though it is hardly longer: its newest ids tell them apart."""
    lookup, journal = PromptLookup(), [5, 6, 7, 8, 9, 5, 6, 7]
    lookup.propose([1, 2, 3, 4, 1, 2, 3], 2)

    assert lookup.propose(journal, 2) == (8, 9)


def test_an_edit_far_back_is_noticed_when_it_matters():
    """The copy's quotation is not in this journal any more: it is compared as a whole, then."""
    lookup, filler = PromptLookup(), list(range(100, 300))
    lookup.propose([1, 2, 3, 4, 5, *filler, 1, 2], 2)

    assert lookup.propose([1, 2, 9, 4, 5, *filler, 1, 2, 3], 2) == ()
    assert lookup.propose([1, 2, 9, 4, 5, *filler, 1, 2, 3, 1, 2, 9], 2) == (4, 5)


def test_a_repeated_line_is_drafted_as_far_as_its_repetitions_reach():
    """The newest place alone would give one line a step; the journal's end is the limit."""
    line = list(range(10))

    assert PromptLookup().propose(line * 2, 63) == tuple(line)
    assert PromptLookup().propose(line * 5, 63) == tuple(line * 3)
    assert PromptLookup().propose(line * 20, 63) == tuple((line * 7)[:63])


def test_a_longer_n_gram_wins_over_a_newer_one():
    """What went before tells two places apart."""
    journal = [7, 1, 2, 3, 50, 60, 8, 1, 2, 3, 70, 80, 7, 1, 2, 3]

    assert PromptLookup().propose(journal, 2) == (50, 60)


def test_two_equal_ids_are_no_reason_to_draft():
    """The shortest n-gram that counts has three ids."""
    assert PromptLookup().propose([1, 2, 9, 1, 2], 5) == ()
    assert PromptLookup().propose([1, 2, 3, 9, 1, 2, 3], 5) == (9, 1, 2, 3)


def test_of_very_many_places_the_newest_are_looked_at():
    """A journal of one id only is drafted in full, and an old quotation of it is out of sight."""
    same = [5] * 20_000

    assert PromptLookup().propose(same, 63) == (5,) * 63


def test_a_step_reads_only_what_is_new():
    """The journal behind the seam is not read again: a step must not cost a comparison of all."""

    class Watched(list):
        read = 0

        def __getitem__(self, key):
            got = super().__getitem__(key)
            Watched.read += len(got) if isinstance(key, slice) else 1
            return got

    lookup, journal = PromptLookup(), Watched(range(30_000))
    lookup.propose(journal, 63)
    journal += [10, 11, 12]
    Watched.read = 0

    assert lookup.propose(journal, 63) == tuple(range(13, 76))
    assert Watched.read < 200
