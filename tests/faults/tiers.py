"""Faults in the tiers: what moves where, what is counted, what outlives a process."""

from tests.faults.fault import Fault

WALK = ("tests/walks/test_tiers_walk.py",)
HOLDING = ("tests/policy/test_holding.py",)
FILING = ("tests/policy/test_filing.py",)
LIFTING = ("tests/policy/test_lifting.py",)
TENDING = ("tests/test_tending.py",)

FAULTS = (
    Fault(
        "rows that stay behind",
        "flashrt/policy/holding.py",
        "            elif wanted is Tier.HOST and part.lies is Tier.DEVICE:\n"
        "                self._sink_to_host(part)\n",
        "",
        (*HOLDING, *WALK),
        "a GPU would hold rows of states that have left it, and no budget would free them",
    ),
    Fault(
        "a copy that takes no room",
        "flashrt/policy/holding.py",
        "        self._tiers.used[Tier.HOST] += size  # taken before anything lies there\n",
        "",
        (*HOLDING, *WALK),
        "the host's memory would be promised twice while copies are made",
    ),
    Fault(
        "a copy that is not waited for",
        "flashrt/policy/holding.py",
        "if entry.leaving and all(copy.done for _, copy in entry.leaving):",
        "if entry.leaving:",
        HOLDING,
        "the engine would wait for the bus between two requests",
    ),
    Fault(
        "a tier that ages with another",
        "flashrt/policy/holding.py",
        "        entry.used_at = self._clocks[Tier.HOST]\n        for part, buffers in whole:",
        "        for part, buffers in whole:",
        HOLDING,
        "what came to the host last would be the first to leave it",
    ),
    Fault(
        "a newcomer whose rows may leave before it sits",
        "flashrt/policy/tiers.py",
        "            part.users[Tier.DEVICE] += 1\n        try:",
        "            part.users[Tier.DEVICE] += 0\n        try:",
        ("tests/policy/test_tiers.py",),
        "a state would be kept without some of its rows",
    ),
    Fault(
        "read rows that nobody counts",
        "flashrt/policy/raising.py",
        "            if part.lies is Tier.DISK:\n                part.owner.buffers = {}",
        "            if part.lies is Tier.DISK:\n                pass",
        (*LIFTING, *WALK),
        "what was read would be held beyond every budget",
    ),
    Fault(
        "a file whose rows have gone with another's",
        "flashrt/policy/filing.py",
        "            if part not in kept:\n                part.file = None",
        "            if part not in kept:\n                pass",
        (*FILING, *WALK),
        "a file would be written that names rows which are not there",
    ),
    Fault(
        "a capsule that leaves its file behind",
        "flashrt/policy/filing.py",
        "            self.shelf.delete(entry.key)\n",
        "            pass\n",
        (*FILING, *TENDING),
        "a deleted conversation would stay on disk",
    ),
    Fault(
        "an order that writes what matters last",
        "flashrt/policy/filing.py",
        "sorted(ranks, key=ranks.__getitem__)",
        "sorted(ranks, key=lambda entry: -ranks[entry])",
        FILING,
        "a kill would cost the end of the newest answer first",
    ),
    Fault(
        "a stop that saves nothing",
        "flashrt/tending.py",
        "        for _ in driven(self._turns.parked(), [], perform):\n            pass\n",
        "",
        TENDING,
        "the live state would not be there after a start",
    ),
    Fault(
        "sessions that come back young",
        "flashrt/policy/remembered.py",
        "used_at=now - note.idle_s - down_s",
        "used_at=now",
        ("tests/policy/test_remembered.py",),
        "what nobody goes on with would stay for ever, one restart after the other",
    ),
    Fault(
        "a buffer that is stretched to fit",
        "flashrt/engine/live.py",
        "if target.shape != saved.shape or target.dtype != saved.dtype:",
        "if False:",
        ("tests/engine/test_hostcopy.py",),
        "a file of another shape or dtype would be restored as if it were right (G8)",
    ),
    Fault(
        "a copy that is its source",
        "flashrt/engine/hostcopy.py",
        "{name: b.clone() for name, b in buffers.items()}",
        "{name: b for name, b in buffers.items()}",
        ("tests/engine/test_hostcopy.py",),
        "a state on the host would be held twice, and change with the one it was made from",
    ),
)
