"""What outlives the process beside capsules."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.policy.journal import Journal
from flashrt.policy.lineage import Span
from flashrt.policy.remembered import noted, recall
from flashrt.policy.replay import Place, ReplayMemory
from flashrt.policy.sessions import SessionRegistry
from flashrt.policy.turn_ends import TurnEnd


def known(now=100.0):
    """A memory and a registry with two sessions, of which one was forked from the other."""
    memory, sessions = ReplayMemory(), SessionRegistry(clock=lambda: now)
    first = Place("d1", "s1", None, b"aaaa")
    memory.keep(first)
    memory.keep(Place("d2", "s2", first, b"bbbbcccc"))
    one = sessions.open("a")
    one.journal = Journal.of([1, 2, 3], 2, (Span(1), Span(2, decoded=True)))
    one.turn, one.first_prompt, one.last_turn, one.hint = 2, 1, 1, "mine"
    one.ends, one.places = [TurnEnd(2, 3, 2, 1, None)], {"d1": 1}
    sessions.open("b").parent = one.name
    return memory, sessions


def after(data, at=100.0, now=7.0, **wish):
    memory, sessions = ReplayMemory(), SessionRegistry(clock=lambda: now, **wish)
    recall(data, memory, sessions, at)
    return memory, sessions


def lines(memory):
    return [[(p.digest, p.spot, p.packed) for p in place.line] for place in memory.places()]


def test_all_of_it_is_known_again_in_its_order():
    """Places with what they begin with, sessions with their turns, names and ends."""
    memory, sessions = known()
    memory_, sessions_ = after(noted(memory, sessions, 100.0))
    assert lines(memory_) == lines(memory)
    assert memory_.held_bytes == memory.held_bytes
    for mine, theirs in zip(sessions.all_newest(), sessions_.all_newest(), strict=True):
        for name in ("name", "namespace", "hint", "turn", "first_prompt", "last_turn"):
            assert getattr(mine, name) == getattr(theirs, name)
        for name in ("packed", "processed", "lineage"):
            assert getattr(mine.journal, name) == getattr(theirs.journal, name)
        assert (mine.ends, mine.places, mine.parent) == (theirs.ends, theirs.places, theirs.parent)


def test_the_time_without_a_server_counts_as_idle():
    """A session that would have expired meanwhile does."""
    data = noted(*known(), 1000.0)
    _, kept = after(data, at=1050.0, idle_ttl_s=60.0)
    assert kept.expire() == []
    _, late = after(data, at=1061.0, idle_ttl_s=60.0)
    assert len(late.expire()) == 2


def test_a_place_whose_name_another_took_is_kept_for_those_that_begin_with_it():
    """And is not found by that name."""
    memory, sessions = known()
    memory.keep(Place("d1", "s1", None, b"zzzz"))
    memory_, _ = after(noted(memory, sessions, 0.0))
    assert lines(memory_) == lines(memory)


def test_a_session_that_is_known_stays_as_it_is():
    """Two notes, or a note that comes late."""
    memory, sessions = known()
    data = noted(memory, sessions, 0.0)
    recall(data, memory, sessions, 0.0)
    assert len(sessions) == 2


def test_what_is_no_note_changes_nothing():
    """Other bytes, another format, a place behind none, more ids than there are."""
    good = noted(*known(), 0.0)
    plain = msgspec.msgpack.decode(good)
    other = [plain[:], plain[:], plain[:]]
    other[0][0] = 99
    other[1][2] = [["d", "s", 5, b"", True]]
    other[2][3] = [[*plain[3][0][:4], 17, *plain[3][0][5:]]]
    for data in (b"", b"junk", good[:-3], *map(msgspec.msgpack.encode, other)):
        memory, sessions = ReplayMemory(), SessionRegistry()
        with pytest.raises((ValueError, msgspec.DecodeError)):
            recall(data, memory, sessions, 0.0)
        assert (memory.held_bytes, len(sessions)) == (0, 0)


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_damage_is_refused_or_read_but_never_a_crash(junk, at, byte):
    """A checksum stands before this; still, no bytes do harm."""
    good = bytearray(noted(*known(), 0.0))
    good[at % len(good)] = byte
    for data in (junk, bytes(good)):
        with contextlib.suppress(ValueError):
            after(data)
