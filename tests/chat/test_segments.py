"""Segments are remembered by content."""

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.marked import Piece
from flashrt.chat.segments import SegmentCache
from tests.chat.vocabulary import tokenizer
from tests.weighing import weighed

WORDS = st.lists(st.sampled_from(["a", "b b", "The fox", "<think>", "äö", "x" * 40]), max_size=12)


@given(st.lists(WORDS), st.integers(0, 3000))
def test_a_cache_of_any_size_changes_no_ids(rounds: list[list[str]], bytes_max: int):
    """Remembered or not, a piece has the ids of its text, and the bound holds."""
    cache = SegmentCache(tokenizer(), bytes_max)

    for words in rounds:
        segments = cache.segments([Piece(word) for word in words])
        assert [segment.ids for segment in segments] == [
            tokenizer().encode_text(word) for word in words
        ]
        assert cache.held_bytes <= bytes_max


def test_what_was_used_last_is_kept():
    """The least recently used piece goes first."""
    words = [Piece("qqq"), Piece("www"), Piece("zzz")]
    sizes = [s.size_bytes for s in SegmentCache(tokenizer(), 0).segments(words)]
    cache = SegmentCache(tokenizer(), sum(sizes) - 1)
    first, second = cache.segments([Piece("qqq"), Piece("www")])

    cache.segments([Piece("qqq")])
    cache.segments([Piece("zzz")])

    assert cache.segments([Piece("qqq")])[0] is first
    assert cache.segments([Piece("www")])[0] is not second


def test_text_and_control_tokens_of_one_spelling_are_two_segments():
    """Other ids, so another key."""
    text, control = SegmentCache(tokenizer(), 9999).segments(
        [Piece("<think>"), Piece("<think>", is_control=True)]
    )

    assert text.key != control.key
    assert control.ids == (tokenizer().control["<think>"],)


def test_a_piece_too_large_to_keep_is_still_encoded():
    """It must not push out everything else for nothing."""
    cache = SegmentCache(tokenizer(), 600)
    (small,) = cache.segments([Piece("ab")])

    (large,) = cache.segments([Piece("z9" * 50)])

    assert large.ids == tokenizer().encode_text("z9" * 50)
    assert cache.segments([Piece("ab")])[0] is small


def test_threads_do_not_disturb_each_other():
    """Several helpers encode and evict at a time; every result is right, and the count is."""
    cache = SegmentCache(tokenizer(), 5000)
    pieces = [Piece(f"word {n}") for n in range(40)]
    wrong: list[str] = []

    def work(start: int) -> None:
        for n in range(start, start + 40):
            chosen = [pieces[n % 40], pieces[(n * 7) % 40]]
            for piece, segment in zip(chosen, cache.segments(chosen), strict=True):
                if segment.ids != tokenizer().encode_text(piece.text):
                    wrong.append(piece.text)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
    assert 0 < cache.held_bytes <= 5000


LETTERS, LENGTHS = ("abcd", "äöüß", "漢字仮名"), (1, 30, 600)
QUICK = (("abcd", 1), ("漢字仮名", 600))
"""The others take a second each."""


@pytest.mark.parametrize(
    ("letters", "length"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in itertools.product(LETTERS, LENGTHS)
    ],
)
def test_the_count_is_what_python_allocates(letters: str, length: int):
    """One-letter pieces and long ones, of any script: never less, and not much more. So a million
    tiny pieces are bounded as a few long ones are."""
    tokenizer().encode_text("warm")
    texts = [f"{number} " + letters[number % 4] * length for number in range(300)]

    def filled() -> SegmentCache:
        cache = SegmentCache(tokenizer(), 1 << 40)
        for text in texts:
            cache.segments([Piece("".join(list(text)))])
        return cache

    cache, allocated = weighed(filled)
    assert allocated <= cache.held_bytes <= 1.3 * allocated
