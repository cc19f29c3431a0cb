"""A cache that is bounded by its bytes."""

from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.lru import ByteLru

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 9)))


@given(STEPS, st.integers(0, 20))
def test_the_newest_that_fit_are_kept(steps: list[tuple[bool, int, int]], bytes_max: int):
    """As a list in the order of use, from whose front whatever is too much goes."""
    cache: ByteLru[int, object] = ByteLru(bytes_max)
    model: list[tuple[int, object, int]] = []

    for keeps, key, size in steps:
        known = next((entry for entry in model if entry[0] == key), None)
        value = object()
        if not keeps:
            assert cache.get(key) is (known[1] if known else None)
            model = [entry for entry in model if entry is not known] + ([known] if known else [])
            continue
        assert cache.keep(key, value, size) is (known[1] if known else value)
        if known is None and size <= bytes_max:
            model.append((key, value, size))
        while sum(entry[2] for entry in model) > bytes_max:
            model.pop(0)
        assert cache.held_bytes == sum(entry[2] for entry in model)


def test_a_value_that_is_too_large_pushes_nothing_out():
    """It would be gone with the next one anyway."""
    cache: ByteLru[str, str] = ByteLru(10)
    cache.keep("small", "s", 4)
    cache.keep("large", "l", 11)

    assert (cache.get("small"), cache.get("large")) == ("s", None)
