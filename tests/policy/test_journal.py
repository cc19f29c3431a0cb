"""The journal of one state as it grows."""

from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import SamplingParams, pack_ids
from flashrt.policy.journal import Journal, common_length
from flashrt.policy.lineage import Span, end

IDS = st.lists(st.integers(0, 5), max_size=40)


def test_only_processed_ids_have_to_match():
    """The pending id may differ from the prompt's: it is not in the state."""
    journal = Journal.of((7, 8, 9), 2, ())
    assert journal.heads(pack_ids((7, 8, 1, 1)))
    assert journal.heads(pack_ids((7, 8)))
    assert not journal.heads(pack_ids((7, 1, 9)))
    assert not journal.heads(pack_ids((7,)))


@given(first=IDS, second=IDS, more=IDS)
def test_the_common_length_is_that_of_a_walk_from_the_beginning(first, second, more):
    """Whatever the two lists are, and however long the part that they share."""
    first, second = [*more, *first], [*more, *second]
    pairs = zip(first, second, strict=False)
    walked = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
    assert common_length(pack_ids(first), pack_ids(second)) == walked


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), st.integers(1, 9)),
        st.tuples(st.just("decode"), st.integers(1, 9)),
        st.tuples(st.just("roll back"), st.integers(1, 5)),
        st.tuples(st.just("drop pending"), st.just(0)),
    ),
    max_size=8,
)


@given(moves=MOVES)
def test_a_journal_agrees_with_its_engine(moves):
    """Ids, pending id, position: what the journal notes is what the engine did (G2)."""
    engine, journal = FakeEngine(vocab_size=20), Journal()
    for move, count in [("feed", 6), *moves]:
        fresh = len(journal.ids) - journal.processed == 0
        match move:
            case "feed":
                ids = tuple(range(count))
                list(engine.prefill(ids))
                journal.feed(ids)
            case "decode":
                chunks = engine.decode(SamplingParams(draft_tokens=0))
                journal.sample([id_ for _ in range(count) for id_ in next(chunks).tokens])
            case "roll back" if not fresh:
                sampled = len(journal.ids) - journal.lineage[0].stop
                back = min(count, sampled - 1, len(journal.ids) - journal.processed)
                engine.rollback(back)
                journal.roll_back(back)
            case "drop pending":
                engine.drop_pending()
                journal.drop_pending()
        assert tuple(journal.ids) == tuple(engine.journal)
        assert journal.processed == engine.position == end(journal.lineage)
        assert bytes(journal.packed) == pack_ids(journal.ids)


def test_a_copy_is_written_on_apart():
    """A turn that fails leaves the journal of the turn before as it was."""
    journal = Journal.of((1, 2), 2, (Span(2),))
    copy = journal.copy()
    copy.feed((3,))
    copy.sample((4,))
    assert (list(journal.ids), journal.processed, journal.lineage) == ([1, 2], 2, (Span(2),))
    assert bytes(journal.packed) == pack_ids((1, 2))
