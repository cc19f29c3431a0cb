"""Kept answers: bounded by count and bytes, shared where conversations go on, and each its own."""

import gc
import tracemalloc

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.chat.request import CacheHints
from flashrt.stored import AnswerStore, StoredAnswer, written


def answer(name: str, *, client: str = "c", before: tuple[bytes, ...] = (), size: int = 10):
    said = written([{"role": "user", "content": "q" * size}])
    output = written([{"type": "message", "id": f"msg_{name}", "content": "a" * size}])
    return StoredAnswer(client, name, b'{"id":"%s"}' % name.encode(), (*before, *said), output)


def test_an_answer_is_found_by_its_own_client_alone():
    """Another client's id is as unknown as one that never was (G10)."""
    store = AnswerStore()
    store.keep(answer("x"))

    assert store.find("c", "x") is not None
    assert store.find("d", "x") is None
    assert not store.delete("d", "x")
    assert store.delete("c", "x")
    assert store.find("c", "x") is None
    assert not store.delete("c", "x")


def test_an_answer_is_shown_with_its_output_and_gone_on_with_whole():
    """The items of answers before stand in front of its own."""
    first = answer("x")
    second = answer("y", before=first.texts)

    assert msgspec.json.decode(second.body)["output"][0]["id"] == "msg_y"
    assert [item.get("id") for item in second.items] == [None, "msg_x", None, "msg_y"]
    assert second.hints == CacheHints()


def test_the_oldest_go_first():
    """When there are too many."""
    store = AnswerStore(answers_max=2)
    for name in "xyz":
        store.keep(answer(name))

    assert [store.find("c", name) is not None for name in "xyz"] == [False, True, True]


def test_an_answer_that_is_too_large_by_itself_is_not_kept():
    """And leaves nothing behind."""
    store = AnswerStore(bytes_max=5_000)
    store.keep(answer("x", size=10_000))

    assert (len(store), store.held_bytes) == (0, 0)


def test_a_conversation_that_goes_on_shares_what_was_said():
    """A turn costs what it adds, and its places; not the whole history again."""
    store = AnswerStore()
    before: tuple[bytes, ...] = ()
    for turn in range(50):
        kept = answer(str(turn), before=before, size=2_000)
        store.keep(kept)
        before = kept.texts

    assert store.held_bytes < 50 * 4_000 + 50 * 51 * 8 + 50 * 1_500


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 3000)), max_size=40))
def test_bytes_are_what_is_held_whatever_comes_and_goes(steps):
    """Never above the bound, and nothing is left when all are gone."""
    store = AnswerStore(answers_max=6, bytes_max=30_000)
    for number, goes, size in steps:
        name = str(number)
        if goes:
            store.delete("c", name)
            continue
        store.delete("c", name)
        before = store.find("c", str(number - 1))
        store.keep(answer(name, before=before.texts if before else (), size=size))
        assert len(store) <= 6
        assert 0 <= store.held_bytes <= 30_000
    for number in range(10):
        store.delete("c", str(number))
    assert (len(store), store.held_bytes) == (0, 0)


def test_what_is_counted_is_what_python_holds():
    """Of many answers, so that the bound is a bound of memory."""
    store = AnswerStore()
    gc.collect()
    tracemalloc.start()
    before: tuple[bytes, ...] = ()
    for number in range(200):
        kept = answer(f"resp_{number:032}", client="k" * 32, before=before, size=200 + number)
        store.keep(kept)
        before = kept.texts if number % 10 else ()
        del kept
    del before
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert store.held_bytes / 1.5 < held < store.held_bytes
