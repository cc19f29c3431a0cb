"""The journal of a committed boundary."""

import pytest

from flashrt.policy.journal import Journal


@pytest.mark.parametrize("processed", [-1, 0, 1, 4, 5])
def test_kv_cannot_lead_or_trail_the_journal(processed):
    """G2: a journal whose state is not at its end, or one id before it, cannot be made."""
    with pytest.raises(AssertionError, match="KV would lead or trail"):
        Journal((7, 8, 9), processed, "a")


def test_only_processed_ids_have_to_match():
    """The pending id may differ from the prompt's: it is not in the state."""
    journal = Journal((7, 8, 9), 2, "a")
    assert journal.heads((7, 8, 1, 1))
    assert journal.heads((7, 8))
    assert not journal.heads((7, 1, 9))
    assert not journal.heads((7,))
