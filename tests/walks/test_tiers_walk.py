"""Random walks over three tiers: whatever fails, budgets hold, and a turn reads as cold."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from flashrt.engine.protocol import pack_ids
from flashrt.fsm.capsule import CapsuleState
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.cuts import CutRule
from flashrt.policy.entries import FileState, packed_of
from flashrt.policy.lineage import end
from flashrt.policy.steps import Performer
from flashrt.policy.tiers import TIER_OF, Tier
from flashrt.policy.turn_loop import TurnLoop
from tests.policy.faulty import FaultyEngine
from tests.policy.shelves import MemoryShelf
from tests.walks.test_turn_loop_walk import MAX_SEQ, VOCAB, TurnLoopWalk

ENGINE_FAULTS = ("to_host", "copy", "to_device", "refill", "from_bytes")
SHELF_FAULTS = ("write", "read", "wait")


class TiersWalk(TurnLoopWalk):
    """The walk over turns, on a store with three tiers, with starts anew between them."""

    @initialize(
        burst_max=st.sampled_from([1, 4]),
        chunk=st.sampled_from([64, 128]),
        budget=st.sampled_from([0, 300, 700, 1500, 4000]),
        host=st.sampled_from([0, 0, 600, 1500, 10**6]),
        pinned=st.booleans(),
        disk=st.sampled_from([None, 800, 3000, 10**6, 10**6]),
        headroom=st.sampled_from([0, 200]),
        at_once=st.booleans(),
        tends=st.booleans(),
    )
    def start(self, burst_max, chunk, budget, host, pinned, disk, headroom, at_once, tends):
        self.tends, self.pinned = tends, pinned
        self.budget, self.host, self.headroom = budget, host, headroom
        self.chunk, self.burst_max = chunk, burst_max
        self.shelf = None if disk is None else MemoryShelf(disk, at_once)
        self.seen = []
        self.boot()

    def boot(self):
        self.engine = FaultyEngine(vocab_size=VOCAB, max_seq=MAX_SEQ, burst_max=self.burst_max)
        self.performer = Performer(self.engine)
        if self.pinned:
            self.host = self.engine.take_host(self.host)
        store = CapsuleStore(self.budget, self.host, self.engine, self.shelf)
        if self.shelf is not None:
            self.shelf.restart()
            store.adopt(self.shelf.filed(), self.engine.info.identity)
        policy = AutoPrefixPolicy(max_seq=MAX_SEQ, store=store)
        rule = CutRule(self.chunk, system_open=(2,), turn_end=(3, 4))
        self.loop = TurnLoop(policy, rule)
        self.exit_was_clean = False

    @property
    def store(self):
        return self.loop.policy.store

    def serve(self, request, trouble):
        served = super().serve(request, trouble)
        if self.tends:
            self.between_two_requests(copies=True)
            self.between_two_requests(copies=True)
        return served

    @rule(name=st.sampled_from(ENGINE_FAULTS), times=st.integers(1, 3))
    def break_the_engine(self, name, times):
        self.engine.faults[name] += times

    @rule(name=st.sampled_from(SHELF_FAULTS), times=st.integers(1, 3))
    def break_the_disk(self, name, times):
        if self.shelf is not None:
            self.shelf.faults[name] += times

    @rule(copies=st.booleans())
    def tend(self, copies):
        self.between_two_requests(copies=copies)

    def between_two_requests(self, *, copies):
        if copies:
            self.engine.finish_copies()
        self.store.settle(self.headroom)
        self.store.write_behind()

    @rule()
    def write(self):
        if self.shelf is not None:
            self.shelf.write()

    @rule()
    def lose_a_file(self):
        """Another server let go of it, or somebody did by hand."""
        if self.shelf is not None and self.shelf.files:
            del self.shelf.files[next(iter(self.shelf.files))]

    @rule(data=st.data())
    def pin_or_unpin(self, data):
        if self.store.entries():
            entry = data.draw(st.sampled_from(self.store.entries()))
            if entry.pinned:
                self.store.unpin(entry.key)
            else:
                self.store.pin(entry.key, budget_bytes=self.budget // 2)

    @rule()
    def shrink(self):
        self.store.shrink()

    @rule()
    def start_anew(self):
        """What is not on disk is lost, and nothing else."""
        self.boot()

    @invariant()
    def the_store_holds_what_it_says(self):
        if not hasattr(self, "loop"):
            return
        tiers, entries = self.store._tiers, self.store.entries()
        parts = {id(part): part for e in entries for part in tiers.parts(e)}.values()
        used = Counter()
        for part in parts:
            used[part.lies] += tiers.taken_bytes(part, part.lies)
            assert part.lies is part.wanted, (part.lies, part.users, "no faster than its users")
            assert bool(part.owner.buffers) == (part.lies is not Tier.DISK)
        leaving = [copy for e in entries for copy in e.leaving or ()]
        used[Tier.HOST] += sum(tiers.taken_bytes(part, Tier.HOST) for part, _ in leaving)
        assert self.store.footprint() == used[Tier.DEVICE] <= self.budget
        assert self.store.host_footprint() == used[Tier.HOST] <= self.host
        if self.shelf is None:  # a parcel of it keeps room until it is written
            assert self.engine.refused == 0, "the budget promised room that was not there"
        for entry in entries:
            self.check_entry(entry)
        self.check_report(entries)

    def check_report(self, entries):
        report = self.store.report()
        assert report["pinned"] == sum(e.pinned for e in entries)
        assert report["device_count"] == sum(e.tier is Tier.DEVICE for e in entries)
        assert report["host_count"] == sum(e.tier is Tier.HOST for e in entries)
        assert report["disk_count"] == sum(e.file is FileState.WHOLE for e in entries)

    def check_entry(self, entry):
        assert entry.tier is TIER_OF[entry.machine.state]
        assert (entry.leaving is not None) == (entry.machine.state is CapsuleState.LEAVING)
        assert entry.tier is not Tier.DISK or entry.file is FileState.WHOLE
        capsule = entry.capsule
        assert capsule.position == entry.position == end(entry.lineage)
        if entry.tier is not Tier.DISK:
            ids = np.concatenate([row.buffers["processed"] for row in capsule.rows])
            assert pack_ids([int(i) for i in ids[: entry.position]]) == packed_of(capsule)
            assert int(capsule.state["position"][0]) == entry.position


@pytest.mark.parametrize("examples", [60, pytest.param(4000, marks=pytest.mark.slow)])
def test_every_turn_reads_as_cold_from_any_tier(examples):
    """Budgets hold after every step, rows are held once, and a fault is only slow (G4, G5, G8)."""
    run_state_machine_as_test(
        TiersWalk,
        settings=settings(max_examples=examples, stateful_step_count=40, deadline=None),
    )
