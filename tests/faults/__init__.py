"""Faults that the tests must notice: each one a way in which this program could be wrong.

`python -m tests.planted_faults` plants them one by one.
"""

from tests.faults import (
    ahead,
    bench,
    cancel,
    chat,
    client,
    disk,
    drafts,
    drain,
    engine,
    fuzz,
    kvcache,
    limits,
    memory,
    metrics,
    packed,
    page,
    policy,
    responses,
    reuse,
    sessions,
    shell,
    soak,
    tables,
    tiers,
)
from tests.faults.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *tables.FAULTS,
    *policy.FAULTS,
    *reuse.FAULTS,
    *tiers.FAULTS,
    *sessions.FAULTS,
    *limits.FAULTS,
    *memory.FAULTS,
    *engine.FAULTS,
    *packed.FAULTS,
    *kvcache.FAULTS,
    *drafts.FAULTS,
    *ahead.FAULTS,
    *chat.FAULTS,
    *shell.FAULTS,
    *responses.FAULTS,
    *cancel.FAULTS,
    *metrics.FAULTS,
    *page.FAULTS,
    *client.FAULTS,
    *disk.FAULTS,
    *drain.FAULTS,
    *soak.FAULTS,
    *fuzz.FAULTS,
    *bench.FAULTS,
)
