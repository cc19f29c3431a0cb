"""Faults that the tests must notice: each one a way in which this program could be wrong.

`python -m tests.planted_faults` plants them one by one.
"""

from tests.faults import (
    cancel,
    chat,
    client,
    drafts,
    drain,
    engine,
    fuzz,
    limits,
    memory,
    metrics,
    page,
    policy,
    reuse,
    shell,
    soak,
    tables,
)
from tests.faults.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *tables.FAULTS,
    *policy.FAULTS,
    *reuse.FAULTS,
    *limits.FAULTS,
    *memory.FAULTS,
    *engine.FAULTS,
    *drafts.FAULTS,
    *chat.FAULTS,
    *shell.FAULTS,
    *cancel.FAULTS,
    *metrics.FAULTS,
    *page.FAULTS,
    *client.FAULTS,
    *drain.FAULTS,
    *soak.FAULTS,
    *fuzz.FAULTS,
)
