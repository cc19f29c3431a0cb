"""A prompt is the sequence of its ids, and keeps its segments."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.prompt import Prompt, Segment
from flashrt.engine.protocol import pack_ids

SEGMENTS = st.lists(st.lists(st.integers(0, 9)).map(lambda ids: Segment(str(ids), tuple(ids))))


@given(SEGMENTS, st.booleans())
def test_a_prompt_is_the_sequence_of_its_segments_ids(segments: list[Segment], thinks: bool):
    """Without a gap, sliced and iterated like a tuple."""
    expected = sum((segment.ids for segment in segments), ())

    prompt = Prompt.from_segments(segments, opens_thinking=thinks)

    assert (tuple(prompt), prompt.ids, prompt[1:3]) == (expected, expected, expected[1:3])
    assert len(prompt) == len(expected)
    assert prompt.packed == pack_ids(expected)
    assert prompt.segments == tuple(segments)
    assert prompt.opens_thinking is thinks


def test_an_id_prompt_is_one_segment_named_by_its_content():
    """Equal ids have equal keys, other ids others."""
    a, same, other = (Prompt.from_ids(ids) for ids in ([1, 2], (1, 2), [1, 3]))

    assert a.segments == same.segments
    assert a.segments[0].ids == (1, 2)
    assert a.segments[0].key != other.segments[0].key
    assert a.packed == pack_ids([1, 2])


def test_a_prompt_without_segments_is_packed_all_the_same():
    """By its ids."""
    assert Prompt((1, 2), ()).packed == pack_ids([1, 2])


@given(
    st.lists(st.sampled_from([1, 256, 65536, 2**24, 0, 257])),
    st.integers(-9, 9),
    st.integers(-9, 9),
    st.sampled_from([None, 1, 2, -1]),
)
def test_packed_ids_are_read_like_a_tuple(ids: list[int], start: int, stop: int, step: int | None):
    """Also where the bytes of an id stand across two others."""
    packed, plain = Prompt(ids, ()), tuple(ids)

    assert packed[start:stop:step] == plain[start:stop:step]
    assert [packed[i] for i in range(-len(ids), len(ids))] == [*plain, *plain]
    for wanted in (0, 1, 256, 65536):
        assert found(packed, wanted, start, stop) == found(plain, wanted, start, stop)


def found(ids: Sequence[int], *where: int) -> int | None:
    try:
        return ids.index(*where)
    except ValueError:
        return None
