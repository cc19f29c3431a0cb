"""What the estimates are told of steps."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import DecodeChunk, SamplingParams
from flashrt.policy.costs import CostModel
from flashrt.policy.measured import Measured
from flashrt.policy.steps import (
    Advance,
    Decode,
    Fetch,
    Lift,
    Prefill,
    Reset,
    Restore,
    Rollback,
    Save,
    Step,
    StepResult,
)
from flashrt.policy.tiers import Tier

GREEDY = SamplingParams()
CHUNK = DecodeChunk((7,))
ENGINE = FakeEngine(vocab_size=32, max_seq=64, identity="measured")
for _ in ENGINE.prefill((1, 2, 3)):
    pass
CAPSULE = ENGINE.snapshot()


@attrs.define
class Told(CostModel):
    """Estimates that write down what they are told."""

    prefills: list[tuple[int, float]] = attrs.field(factory=list)
    restores: list[tuple[int, float, Tier]] = attrs.field(factory=list)

    def prefilled(self, tokens: int, ms: float) -> None:
        if tokens:
            self.prefills.append((tokens, ms))

    def restored(self, capsule_bytes: int, ms: float, tier: Tier = Tier.DEVICE) -> None:
        self.restores.append((capsule_bytes, ms, tier))


Took = tuple[Step, StepResult, int, float]


def prefill(tokens: int, ms: float, *, first: bool = True) -> Took:
    step = Prefill((1,) * tokens, ()) if first else Advance()
    return step, tokens, tokens, ms


def an_id(ms: float, *, first: bool = True) -> Took:
    return (Decode(GREEDY) if first else Advance()), CHUNK, 0 if first else 1, ms


def told(steps: Sequence[Took]) -> Told:
    costs = Told()
    measured = Measured(costs)
    measured.begin()
    for took in steps:
        measured.took(*took)
    return costs


def test_a_prefill_took_what_its_first_id_waited_for():
    """A device is given 100 tokens in a millisecond, and has them after 24."""
    assert told([prefill(100, 1.0), an_id(23.0), an_id(13.0, first=False)]).prefills == [
        (100, 24.0)
    ]


def test_a_warm_device_is_not_taken_for_a_faster_one():
    """A thousand short turns, each given out in a millisecond and there after 24: the estimate of a
    long prompt stays what they say."""
    costs = CostModel()
    measured = Measured(costs)
    for _ in range(1000):
        measured.begin()
        for took in (prefill(100, 1.0), an_id(23.0)):
            measured.took(*took)

    assert costs.prefill_ms(100) == pytest.approx(24, rel=0.02)
    assert costs.prefill_ms(32_768) > 1000


@given(parts=st.lists(st.tuples(st.integers(1, 4096), st.floats(0.1, 500)), min_size=1, max_size=8))
def test_a_prompt_in_pieces_is_one_prefill(parts):
    """However many steps it took; a state that is saved between them has no part in it."""
    steps: list[Took] = []
    for number, (tokens, ms) in enumerate(parts):
        steps += [prefill(tokens, ms, first=not number), (Save(), CAPSULE, 0, 1000.0)]

    found = told([*steps, an_id(5.0)])

    ((tokens, ms),) = found.prefills
    assert tokens == sum(count for count, _ in parts)
    assert ms == pytest.approx(sum(ms for _, ms in parts) + 5.0)


@pytest.mark.parametrize(
    "between",
    [(Reset(), None, -100, 0.1), (Rollback(3), None, -3, 0.1), (Restore(CAPSULE), None, 0, 0.1)],
    ids=["reset", "rollback", "restore"],
)
def test_what_is_dropped_before_an_id_is_never_told(between: Took):
    """It may wait for the device in the prefill's stead."""
    assert told([prefill(100, 1.0), between, an_id(23.0)]).prefills == []


def test_a_prefill_without_an_id_is_forgotten_with_its_item():
    """The next item's first id did not wait for it."""
    costs = Told()
    measured = Measured(costs)
    for steps in ([prefill(100, 1.0)], [prefill(40, 1.0), an_id(9.0)], [an_id(2.0)]):
        measured.begin()
        for took in steps:
            measured.took(*took)

    assert costs.prefills == [(40, 10.0)]


def test_a_restore_takes_its_reading_too():
    """From a file: read, brought near, restored; each restore counts what came since the last."""
    costs = Told()
    measured = Measured(costs)
    measured.begin()
    assert measured.restore_ms is None
    for took in (
        (Fetch(lambda: None), None, 0, 30.0),
        (Lift(()), (), 0, 4.0),
        (Restore(CAPSULE, Tier.DISK), None, 5, 2.0),
        (Restore(CAPSULE), None, 5, 1.0),
    ):
        measured.took(*took)

    size = CAPSULE.capsule_bytes
    assert costs.restores == [(size, 36.0, Tier.DISK), (size, 1.0, Tier.DEVICE)]
    assert measured.restore_ms == 37.0
    measured.begin()
    assert measured.restore_ms is None
