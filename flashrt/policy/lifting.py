"""The moves up: a capsule that lies elsewhere is brought to where it is restored from.

From its file into host memory, and from there into the engine's, where there is room for it: who
is restored is likely to be used again. Where there is none, it is restored from host memory.
"""

from collections.abc import Generator, Sequence

from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.entries import Entry
from flashrt.policy.shelf import Unpacked
from flashrt.policy.steps import Fetch, Lift, Restore, Step, StepResult
from flashrt.policy.tiers import Tier

Steps = Generator[Step, StepResult, None]


def restored(store: CapsuleStore, entry: Entry) -> Steps:
    """Become the state of an entry. Raises what went wrong; then the entry is of no use.

    Afterwards it lies in the fastest tier that has room for it.
    """
    with store.guarding(entry.capsule):
        yield from _restored(store, entry)


def _restored(store: CapsuleStore, entry: Entry) -> Steps:
    tier = entry.tier or Tier.DEVICE
    try:
        if entry.tier is not None and not store.is_at_hand(entry):
            known = store.names_in_memory(entry)
            unpacked = yield Fetch(lambda: store.read(entry, known))
            assert isinstance(unpacked, Unpacked), f"reading gave {unpacked!r}"
            store.fetched(entry, unpacked)
        yield from _lifted(store, entry)
        yield Restore(entry.capsule, tier)
    finally:
        store.landed(entry)


def _lifted(store: CapsuleStore, entry: Entry) -> Steps:
    parts = store.make_room_for(entry)
    if not parts:
        return
    try:
        buffers = yield Lift([part.owner.buffers for part in parts])
    except Exception:
        store.counts["copy_faults"] += 1
        return
    assert isinstance(buffers, Sequence), f"lifting gave {buffers!r}"
    store.promoted(entry, parts, buffers)
