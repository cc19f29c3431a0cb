"""What the real engine refuses, the strict fake refuses."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import Capsule, ContextFull, Engine, EngineMisuse
from tests.engine.contract import fill, take
from tests.engine.models import Shape, ids, make_engine

PROMPT = ids(400)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("prefill", "decode", "rollback", "snapshot", "restore", "drop")),
        st.one_of(st.integers(0, 70), st.sampled_from((1, 63, 64, 65, 128))),
    ),
    min_size=2,
    max_size=9,
)


def attempt(engine: Engine, kind: str, n: int, capsules: list[Capsule]) -> str:
    """One step; what became of it."""
    try:
        match kind:
            case "prefill":
                fill(engine, PROMPT[:n])
            case "decode":
                take(engine, n or 1)
            case "rollback":
                engine.rollback(n)
            case "snapshot":
                capsules.append(engine.snapshot(engine.position - n))
            case "restore":
                engine.restore(capsules[n % len(capsules)] if capsules else engine.snapshot())
            case "drop":
                engine.drop_pending()
    except (EngineMisuse, ContextFull) as error:
        return type(error).__name__
    return "done"


@settings(max_examples=40, deadline=None)
@example([("decode", 69), ("rollback", 10), ("rollback", 60)])
@given(STEPS)
def test_the_real_engine_and_the_strict_fake_refuse_the_same_steps(steps):
    """So what the policy learns from the fake holds for the real one: positions, floors, reach."""
    pairs: list[tuple[Engine, list[Capsule]]] = [(WALKED, []), (FakeEngine(max_seq=256), [])]
    WALKED.reset()
    for kind, n in [("prefill", 60), *steps]:
        ends = [attempt(engine, kind, n, capsules) for engine, capsules in pairs]
        assert ends[0] == ends[1]
        real, fake = (engine for engine, _ in pairs)
        assert (real.position, len(real.journal)) == (fake.position, len(fake.journal))


WALKED = make_engine(Shape(layers=2, interval=2), max_seq=256)
