"""Steps as values, performed on an engine."""

from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import DecodeChunk, SamplingParams
from flashrt.policy.steps import Advance, Decode, DropPending, Performer, Prefill, Reset, Rollback


def test_a_step_goes_to_the_next_boundary_and_no_further():
    """Prefill stands at each cut, decode after each chunk; between them the engine stands still."""
    engine = FakeEngine()
    performer = Performer(engine)
    assert performer.perform(Prefill((1, 2, 3, 4, 5), (2, 3))) == 2
    assert engine.position == 2
    assert performer.perform(Advance()) == 3
    assert performer.perform(Advance()) == 5
    chunk = performer.perform(Decode(SamplingParams()))
    assert isinstance(chunk, DecodeChunk)
    assert engine.position == 5
    performer.perform(Advance())
    assert engine.position == 6
    performer.perform(Rollback(1))
    assert engine.position == 5
    performer.perform(DropPending())
    assert tuple(engine.journal) == (1, 2, 3, 4, 5)
    performer.perform(Reset())
    assert engine.position == 0


def test_decode_at_its_end_gives_none():
    """The window is full, or a stop id came."""
    engine = FakeEngine(max_seq=4)
    performer = Performer(engine)
    performer.perform(Prefill((1, 2, 3), ()))
    assert performer.perform(Decode(SamplingParams())) is not None
    assert performer.perform(Advance()) is None
