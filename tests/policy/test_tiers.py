"""The books of memory. tests/walks/test_tiers_walk.py compares them with all that is held."""

from flashrt.fsm.capsule import CAPSULE, CapsuleState
from flashrt.policy.entries import Entry
from flashrt.policy.spacing import Kind
from flashrt.policy.tiers import TIER_OF, Tier, Tiers, held_bytes
from tests.policy.capsule_making import ROW_BYTES, STATE_BYTES, Maker


def entry(ids, like=None):
    capsule = Maker().make(ids, like)
    return Entry(str(ids), capsule, "a", "s", Kind.CUT, 1, ())


def test_every_place_has_its_tier_and_no_other_state_has_one():
    """What is written, or gone, lies nowhere."""
    places = set(CapsuleState) - CAPSULE.terminal - {CAPSULE.initial}
    assert set(TIER_OF) == places
    assert list(Tier) == [Tier.DEVICE, Tier.HOST, Tier.DISK]


def test_rows_are_wanted_in_the_fastest_tier_of_their_users():
    """And are forgotten with the last one."""
    tiers = Tiers(10**6, 10**6)
    short = entry([1, 2])
    long = entry([1, 2, 3], short.capsule)
    tiers.admit(short, Tier.DEVICE, Tier.DEVICE)
    tiers.admit(long, Tier.HOST, Tier.HOST)
    (shared, own) = tiers.rows(long)
    assert (shared.wanted, own.wanted) == (Tier.DEVICE, Tier.HOST)
    assert tiers.used == {
        Tier.DEVICE: STATE_BYTES + 2 * ROW_BYTES,
        Tier.HOST: STATE_BYTES + ROW_BYTES,
    }
    tiers.seat(short, None)
    assert shared.wanted is Tier.HOST
    tiers.seat(long, None)
    assert tiers.used[Tier.DEVICE] == tiers.used[Tier.HOST] == 0
    assert tiers.part(long.capsule.rows[0]) is None


def test_a_part_that_moves_is_counted_where_it_lies():
    """Once, with its new buffers."""
    tiers = Tiers(10**6, 10**6)
    one = entry([1, 2])
    tiers.admit(one, Tier.DEVICE, Tier.DEVICE)
    for part in tiers.parts(one):
        tiers.place(part, Tier.HOST, {"moved": 1})
    assert tiers.used == {Tier.DEVICE: 0, Tier.HOST: STATE_BYTES + 2 * ROW_BYTES}
    assert one.capsule.state == one.capsule.rows[0].buffers == {"moved": 1}


def test_rows_that_a_newcomer_shares_stay_though_their_users_go():
    """Until it sits, or is given up."""
    tiers = Tiers(10**6, 10**6)
    short = entry([1, 2])
    long = entry([1, 2, 3], short.capsule)
    tiers.admit(short, Tier.DEVICE, Tier.DEVICE)
    with tiers.guarded(long.capsule):
        tiers.seat(short, None)
        assert tiers.used[Tier.DEVICE] == 2 * ROW_BYTES
        assert tiers.added_bytes(long.capsule) == STATE_BYTES + ROW_BYTES
    assert tiers.used[Tier.DEVICE] == 0
    assert tiers.added_bytes(long.capsule) == STATE_BYTES + 3 * ROW_BYTES


def test_what_leaving_frees_is_what_nobody_else_holds_there():
    """Neither shared rows nor what lies elsewhere."""
    tiers = Tiers(10**6, 10**6)
    short = entry([1, 2])
    long = entry([1, 2, 3], short.capsule)
    tiers.admit(short, Tier.DEVICE, Tier.DEVICE)
    tiers.admit(long, Tier.DEVICE, Tier.DEVICE)
    assert tiers.alone_bytes(short) == STATE_BYTES
    assert tiers.alone_bytes(long) == STATE_BYTES + ROW_BYTES
    assert held_bytes([short.capsule, long.capsule]) == 2 * STATE_BYTES + 3 * ROW_BYTES


def test_what_was_read_has_the_size_that_it_really_has():
    """A file says how long it is, not what its buffers take."""
    tiers = Tiers(10**6, 10**6)
    one = entry([1, 2])
    tiers.admit(one, Tier.DISK, Tier.DISK)
    for part in tiers.parts(one):
        tiers.fetched(part, {"read": 1}, 7)
        tiers.place(part, Tier.HOST, part.owner.buffers)
    assert tiers.used[Tier.HOST] == 14
    assert one.capsule.capsule_bytes == 14
