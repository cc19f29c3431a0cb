"""Random walks over the capsule store, beside a model that looks at everything."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flashrt.engine.protocol import pack_ids
from flashrt.fsm.capsule import CapsuleState
from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.spacing import Kind
from tests.policy.capsule_making import Maker

IDS = st.lists(st.integers(0, 1), min_size=1, max_size=12)
NAMESPACES = st.sampled_from("ab")


class StoreWalk(RuleBasedStateMachine):
    """Put, find, pin, evict, drop and use, over several namespaces with rows in common."""

    @initialize(budget=st.sampled_from([0, 150, 400, 900, 10**6]))
    def start(self, budget):
        self.store = CapsuleStore(budget)
        self.model = {}
        self.serial = 0

    @rule(ids=IDS, namespace=NAMESPACES, kind=st.sampled_from(Kind), shares=st.booleans())
    def put(self, ids, namespace, kind, shares):
        below = self.store.find(namespace, pack_ids(ids)) if shares else None
        capsule = Maker().make(ids, below.capsule if below else None)
        self.serial += 1
        entry = self.store.put(
            capsule,
            namespace=namespace,
            session=f"s{self.serial % 3}",
            kind=kind,
            turn=self.serial,
            lineage=(),
        )
        known = self.model.get((namespace, tuple(ids)))
        if known is not None and known.capsule is not capsule:
            assert entry is known
        if entry is not None:
            self.model[namespace, tuple(ids)] = entry
        self.forget_the_gone()

    @rule(need=st.integers(0, 500), data=st.data())
    def make_room(self, need, data):
        keep = data.draw(st.lists(st.sampled_from(self.held()), max_size=2)) if self.held() else []
        fits = self.store.make_room(need, keep)
        assert all(e.machine.state is not CapsuleState.GONE for e in keep)
        if fits:
            assert self.store.footprint() + need <= self.store.budget_bytes
        self.forget_the_gone()

    @precondition(lambda self: self.held())
    @rule(data=st.data(), act=st.sampled_from(["pin", "unpin", "use", "drop", "damage", "tail"]))
    def change(self, data, act):
        entry = data.draw(st.sampled_from(self.held()))
        match act:
            case "pin":
                refusal = self.store.pin(entry.key, budget_bytes=self.store.budget_bytes // 2)
                assert (refusal is None) == entry.pinned
            case "unpin":
                self.store.unpin(entry.key)
            case "use":
                self.store.use(entry)
            case "drop" if not entry.pinned:
                self.store.drop(entry)
            case "damage":
                self.store.drop(entry, damaged=True)
            case "tail":
                entry.first_to_go = True
        self.forget_the_gone(damaged=act == "damage", dropped=entry)

    @rule()
    def evict(self):
        gone = self.store.evict_lru()
        assert gone is None or not gone.first_to_go or gone.machine.state is CapsuleState.GONE
        self.forget_the_gone()

    @rule(ids=IDS, namespace=NAMESPACES)
    def find(self, ids, namespace):
        found = self.store.find(namespace, pack_ids(ids))
        begins = [
            entry
            for (space, held), entry in self.model.items()
            if space == namespace and tuple(ids[: len(held)]) == held
        ]
        assert found is max(begins, key=lambda e: e.position, default=None)
        assert set(self.store.path(namespace, pack_ids(ids))) == set(begins)

    def held(self):
        return list(self.model.values())

    def forget_the_gone(self, *, damaged=False, dropped=None):
        """What left the store leaves the model; a pinned one only if it was damaged."""
        for key, entry in list(self.model.items()):
            if entry.machine.state is CapsuleState.GONE:
                del self.model[key]
        pinned_before = getattr(self, "pinned", set())
        gone = {e for e in pinned_before if e.machine.state is CapsuleState.GONE}
        assert gone <= ({dropped} if damaged else set())
        self.pinned = {e for e in self.model.values() if e.pinned}

    @invariant()
    def the_store_is_what_the_model_says(self):
        if not hasattr(self, "store"):
            return
        assert set(self.store.entries()) == set(self.model.values())
        blocks = {b for e in self.model.values() for b in e.capsule.rows}
        states = sum(e.capsule.state_bytes for e in self.model.values())
        held = states + sum(b.block_bytes for b in blocks)
        assert self.store.footprint() == held <= self.store.budget_bytes
        for (namespace, ids), entry in self.model.items():
            below = [
                e
                for (space, held_ids), e in self.model.items()
                if space == namespace
                and len(held_ids) < len(ids)
                and ids[: len(held_ids)] == held_ids
            ]
            assert entry.parent is max(below, key=lambda e: e.position, default=None)


@pytest.mark.parametrize("examples", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_the_store_keeps_its_word(examples):
    """Never over its budget, never what was not put in, never another namespace's."""
    run_state_machine_as_test(
        StoreWalk, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None)
    )
