"""Every law of the state at once, on two engines of the same weights."""

import itertools
from collections.abc import Sequence

import attrs

from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.selfcheck import check_rows
from tests.engine.contract import SEEDED, fill, same_capsule, take


def check_every_law(engine: HybridEngine, other: HybridEngine, prompt: Sequence[int]) -> None:
    """Restored = never left; rolled back = never decoded; drafts or none = the same bytes, and
    there are some."""
    fill(engine, prompt[:61])
    capsules = [engine.snapshot()]
    off = attrs.evolve(SEEDED, draft_tokens=0)
    for _chunk in itertools.islice(engine.decode(off), 12):
        capsules.append(engine.snapshot())
    there = len(capsules) - 1
    for n in (1, 5, there - 1):  # over a multiple of 64
        engine.rollback(n)
        assert same_capsule(engine.snapshot(), capsules[there - n])
        take(engine, n, SEEDED)
    assert same_capsule(engine.snapshot(), capsules[there])
    for one in (0, 9):
        for drafts in (0, None):
            fill(other, prompt[::-1][:70])
            other.restore(capsules[one])
            take(other, there - one, attrs.evolve(SEEDED, draft_tokens=drafts))
            assert same_capsule(other.snapshot(), capsules[there])
    assert any(chunk.drafter for chunk in itertools.islice(engine.decode(SEEDED), 3))
    check_rows(engine._live)
