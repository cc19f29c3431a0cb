"""Every engine passes the contract."""

from collections.abc import Callable

import pytest

from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import Engine
from tests.engine.contract import CHECKS
from tests.engine.moving import MOVING
from tests.engine.sharing import SHARING

ENGINES: dict[str, Callable[[], Engine]] = {
    "fake": FakeEngine,
    "fake in bursts": lambda: FakeEngine(burst_max=5),
    "fake with host memory": lambda: taken(FakeEngine()),
}


def taken(engine: FakeEngine) -> FakeEngine:
    """With room for what the laws move, in pages."""
    assert engine.take_host((1 << 20) + 7) == 1 << 20
    return engine


@pytest.mark.parametrize("check", [*CHECKS, *SHARING, *MOVING], ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES.keys())
def test_engine_keeps_the_contract(make, check):
    """The law named by the check holds on this engine."""
    check(make(), make())


def test_the_fake_gives_no_more_host_memory_than_was_taken():
    """By pages, as the real one: what is let go of makes room, and files take none."""
    engine = FakeEngine()
    list(engine.prefill([1] * 9))
    rows = engine.snapshot().rows[0].buffers
    size = engine.host_bytes(rows["processed"].nbytes)
    assert size == 72
    assert engine.take_host(3 * 64) == 3 * 64
    assert engine.host_bytes(72) == 128
    held = engine.to_host(rows).wait()
    with pytest.raises(MemoryError):
        engine.to_host(rows)
    engine.for_file(rows)
    views = engine.to_bytes(held)
    del held
    with pytest.raises(MemoryError):
        engine.to_host(rows)
    del views
    assert list(engine.to_host(rows).wait()["processed"]) == [1] * 9
