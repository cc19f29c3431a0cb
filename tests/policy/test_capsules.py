"""The capsule store. tests/walks holds the random walks over it."""

import gc
import weakref

import attrs
import pytest

from flashrt.engine.protocol import pack_ids
from flashrt.fsm.capsule import CapsuleState
from flashrt.policy import capsule_index, capsules
from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.spacing import Kind
from tests.policy.capsule_making import ROW_BYTES, STATE_BYTES, Maker

ROOM = 10**9


def kept(store, capsule, namespace="a", kind=Kind.CUT, turn=1, session="s1"):
    return store.put(
        capsule, namespace=namespace, session=session, kind=kind, turn=turn, lineage=()
    )


def test_the_deepest_state_that_begins_the_prompt_is_found():
    """Not a longer one, not one that leaves the prompt, not another namespace's."""
    store, make = CapsuleStore(ROOM), Maker().make
    short, deep = kept(store, make([1, 2])), kept(store, make([1, 2, 3, 4]))
    kept(store, make([1, 2, 9, 4, 5]))
    kept(store, make([1, 2, 3, 4, 5, 6]))
    kept(store, make([1, 2, 3, 4, 5]), namespace="b")
    prompt = pack_ids([1, 2, 3, 4, 5])
    assert store.find("a", prompt) is deep
    assert store.find("a", prompt, at_most=3) is short
    assert store.path("a", prompt) == [deep, short]
    assert store.has("a", prompt, 2) is short
    assert store.has("a", prompt, 3) is None
    assert store.find("c", prompt) is None


def test_a_checksum_is_never_taken_for_the_ids(monkeypatch):
    """With a checksum that is always the same, all ids still decide."""
    monkeypatch.setattr(capsule_index, "checksum", lambda data, start: 0)
    store, make = CapsuleStore(ROOM), Maker().make
    wrong, right = kept(store, make([1, 9])), kept(store, make([1, 2]))
    kept(store, make([3, 2]))
    assert store.find("a", pack_ids([1, 2, 3])) is right
    assert store.find("a", pack_ids([1, 9, 3])) is wrong
    assert store.find("a", pack_ids([7, 7, 7])) is None


def test_shared_rows_are_held_once():
    """A further capsule of a line costs its state and its new rows."""
    store, make = CapsuleStore(ROOM), Maker().make
    first = make([1] * 50)
    kept(store, first)
    assert store.footprint() == STATE_BYTES + 50 * ROW_BYTES
    kept(store, make([1] * 60, like=first))
    assert store.footprint() == 2 * STATE_BYTES + 60 * ROW_BYTES


def test_what_goes_frees_its_memory():
    """Nobody holds the capsule or its rows any more."""
    store = CapsuleStore(ROOM)
    capsule = Maker().make([1, 2, 3])
    gone = weakref.ref(capsule), weakref.ref(capsule.rows[0])
    kept(store, capsule)
    del capsule
    assert gone[0]() is not None
    store.evict_lru()
    gc.collect()
    assert gone[0]() is gone[1]() is None
    assert store.footprint() == 0


def test_a_boundary_that_is_held_is_not_held_twice():
    """The entry stays, and counts as used; a pending id does not make another boundary."""
    store, make = CapsuleStore(ROOM), Maker().make
    entry = kept(store, make([1, 2]))
    assert kept(store, make([1, 2], pending=3)) is entry
    assert len(store.entries()) == 1


def test_the_budget_is_never_passed_and_old_states_give_way():
    """Twenty system prompts, twice, in room for five: evictions are counted, nothing sticks."""
    store, make = CapsuleStore(5 * (STATE_BYTES + 8 * ROW_BYTES)), Maker().make
    for _ in range(2):
        for prompt in range(20):
            assert kept(store, make([prompt] * 8)) is not None
            assert store.footprint() <= store.budget_bytes
    assert len(store.entries()) == 5
    assert store.counts["evicted"] == 35
    assert {e.capsule.tokens[0] for e in store.entries()} == set(range(15, 20))


def test_what_does_not_fit_is_declined_and_counted():
    """A budget of nothing keeps nothing; a pinned state is never evicted for another."""
    assert kept(CapsuleStore(0), Maker().make([1])) is None
    store, make = CapsuleStore(3 * STATE_BYTES), Maker().make
    entry = kept(store, make([1] * 5))
    assert store.pin(entry.key, budget_bytes=store.budget_bytes) is None
    assert kept(store, make([2] * 5)) is not None
    assert kept(store, make([3] * 6)) is None
    assert store.counts["declined"] == 1
    assert store.get(entry.key) is entry


def test_what_can_never_fit_costs_no_other_state_its_place():
    """A capsule larger than the budget, or than what pins and kept entries leave of it."""
    store, make = CapsuleStore(5 * STATE_BYTES), Maker().make
    held = [kept(store, make([n])) for n in range(4)]
    assert kept(store, make([9] * 500)) is None
    assert not store.make_room(6 * STATE_BYTES)
    store.pin(held[0].key, budget_bytes=ROOM)
    assert not store.make_room(4 * STATE_BYTES, keep=(held[1],))
    assert store.entries() == (*held,)
    assert store.counts["declined"] == 3
    assert store.counts["evicted"] == 0


def test_a_tail_that_goes_first_makes_nothing_else_older():
    """It goes whatever it is worth, so its worth says nothing about what is left."""
    store, make = CapsuleStore(ROOM), Maker().make
    costly = kept(store, make([7] * 3000))
    tail = kept(store, make([8] * 60000))
    tail.first_to_go = True
    assert store.evict_lru() is tail
    store.budget_bytes = store.footprint() + 2 * (5 * ROW_BYTES + STATE_BYTES)
    for child in range(6):
        kept(store, make([child + 10] * 5))
    assert store.get(costly.key) is costly


def test_a_state_that_is_used_again_and_again_outlives_its_likes():
    """By a restore, or because its boundary was come by again."""
    store, make = CapsuleStore(4 * (STATE_BYTES + 8 * ROW_BYTES)), Maker().make
    restored, met = make([1] * 8), make([2] * 8)
    entry, again = kept(store, restored), kept(store, met)
    for other in range(40):
        kept(store, make([other + 10] * 8))
        store.use(entry)
        assert kept(store, met) is again


def test_a_tail_that_is_used_again_is_no_tail_any_more():
    """The edit was taken back."""
    store, make = CapsuleStore(ROOM), Maker().make
    tail, other = kept(store, make([1] * 500)), kept(store, make([2] * 5))
    tail.first_to_go = True
    store.use(tail)
    assert store.evict_lru() is other


def test_of_equal_costs_the_larger_state_goes():
    """It frees more for the same tokens."""
    store, make = CapsuleStore(ROOM), Maker().make
    kept(store, make([1] * 50))
    large = kept(store, attrs.evolve(make([2] * 50), state_bytes=9 * STATE_BYTES))
    assert store.evict_lru() is large


def test_rows_that_others_hold_are_no_weight():
    """Their holder's going would not free them."""
    store, make = CapsuleStore(ROOM), Maker().make
    below = kept(store, make([1] * 500))
    middle = kept(store, make([1] * 900, like=below.capsule))
    kept(store, make([1] * 1900, like=middle.capsule))
    alone = kept(store, make([2] * 401))
    assert middle.cost < alone.cost
    assert store.evict_lru() is alone


def test_a_pinned_state_stays_though_it_is_worth_least():
    """Others go for it, and then nothing does."""
    store, make = CapsuleStore(ROOM), Maker().make
    cheap, costly = kept(store, make([1])), kept(store, make([2] * 900))
    store.pin(cheap.key, budget_bytes=ROOM)
    assert store.evict_lru() is costly
    assert store.evict_lru() is None
    assert store.entries() == (cheap,)


def test_a_pin_of_another_capsule_than_the_held_one_is_refused():
    """Equal ids are not enough: the client would be told that what it has made stays."""
    store, make = CapsuleStore(ROOM), Maker().make
    entry = kept(store, make([1, 2]))
    assert store.pin(entry.key, make([1, 2]), budget_bytes=ROOM) is not None
    assert not entry.pinned
    assert store.pin(entry.key, entry.capsule, budget_bytes=ROOM) is None


def test_the_states_of_a_session_are_its_own():
    """Thinning one conversation never looks at another's."""
    store, make = CapsuleStore(ROOM), Maker().make
    mine = kept(store, make([1]))
    kept(store, make([2]), session="s2")
    assert store.of_session("s1") == (mine,)


def test_a_costly_state_outlives_cheap_ones_of_its_size():
    """A parent stays while six children with a little of their own come and go."""
    room = 3000 * ROW_BYTES + STATE_BYTES + 2 * (5 * ROW_BYTES + STATE_BYTES)
    store, make = CapsuleStore(room), Maker().make
    parent = kept(store, make([7] * 3000))
    for child in range(6):
        kept(store, make([child + 10] * 5), session=f"c{child}")
    assert store.counts["evicted"] == 4
    assert store.get(parent.key) is parent


def test_a_state_that_is_never_used_goes_in_the_end():
    """However costly it was: the clock passes it."""
    store, make = CapsuleStore(30 * (STATE_BYTES + 10 * ROW_BYTES)), Maker().make
    old = kept(store, make([7] * 12))
    for child in range(400):
        kept(store, make([child + 10] * 10))
    assert store.get(old.key) is None


def test_a_tail_that_was_cut_off_goes_first():
    """Whatever it is worth."""
    store, make = CapsuleStore(ROOM), Maker().make
    tail, other = kept(store, make([1] * 500)), kept(store, make([2] * 5))
    tail.first_to_go = True
    assert store.evict_lru() is tail
    assert store.evict_lru() is other
    assert store.evict_lru() is None


def test_the_cost_of_a_state_counts_from_the_next_one_below():
    """And grows when that one goes."""
    store, make = CapsuleStore(ROOM), Maker().make
    deep = kept(store, make([1] * 90))
    low = kept(store, make([1] * 20))
    middle = kept(store, make([1] * 50))
    assert (low.cost, middle.cost, deep.cost) == (20, 30, 40)
    store.drop(middle)
    assert deep.cost == 70
    store.drop(low)
    assert deep.cost == 90


def test_pins_have_a_budget_and_say_why_they_are_refused():
    """Shared rows count once; an unknown state cannot be pinned; letting go makes room."""
    store, make = CapsuleStore(ROOM), Maker().make
    first = make([1] * 50)
    one, two = kept(store, first), kept(store, make([1] * 60, like=first))
    budget = 2 * STATE_BYTES + 60 * ROW_BYTES
    assert store.pin(one.key, budget_bytes=budget) is None
    assert store.pin(two.key, budget_bytes=budget) is None
    third = kept(store, make([2]))
    refusal = store.pin(third.key, budget_bytes=budget)
    assert "--capsule-budget-mb" in refusal.reason
    assert third.machine.state is CapsuleState.DEVICE
    store.unpin(one.key)
    store.unpin(two.key)
    assert store.pin(third.key, budget_bytes=budget) is None
    assert "not held" in store.pin("unknown", budget_bytes=ROOM).reason


def test_make_room_keeps_what_it_is_told_to():
    """The capsule that is about to be restored is not evicted for the one that is parked."""
    store, make = CapsuleStore(250), Maker().make
    needed, other = kept(store, make([1])), kept(store, make([2]))
    assert store.make_room(100, keep=(needed,))
    assert store.get(other.key) is None
    assert not store.make_room(200, keep=(needed,))
    assert store.get(needed.key) is needed


def test_a_damaged_state_goes_even_if_it_is_pinned():
    """It is of no use to anybody (G8)."""
    store = CapsuleStore(ROOM)
    entry = kept(store, Maker().make([1]))
    store.pin(entry.key, budget_bytes=ROOM)
    store.drop(entry, damaged=True)
    assert entry.machine.state is CapsuleState.GONE
    assert store.report()["damaged"] == 1
    store.use(entry)
    assert store.entries() == ()


def test_states_are_counted_by_kind_as_they_come_and_go():
    """Evicted, dropped and held twice: the counts are always those of the entries."""
    store, make = CapsuleStore(4 * (STATE_BYTES + 3 * ROW_BYTES)), Maker().make
    kinds = tuple(Kind)
    for number in range(12):
        kept(store, make([number, 1, 1]), kind=kinds[number % len(kinds)])
        kept(store, make([number, 1, 1]), kind=kinds[number % len(kinds)])
        if number % 3 == 0:
            store.drop(store.entries()[-1])
        entries = [entry.kind.value for entry in store.entries()]
        assert store.kinds() == {kind.value: entries.count(kind.value) for kind in Kind}
    assert store.counts["evicted"] > 0


@pytest.mark.parametrize("namespaces", [("a", "b"), ("1:a", "a"), ("", "0:")])
def test_keys_tell_namespaces_apart(namespaces):
    """The same ids in two namespaces are two boundaries."""
    capsule = Maker().make([1, 2])
    first, second = (capsules.key_of(name, capsule) for name in namespaces)
    assert first != second
