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
}


@pytest.mark.parametrize("check", [*CHECKS, *SHARING, *MOVING], ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES.keys())
def test_engine_keeps_the_contract(make, check):
    """The law named by the check holds on this engine."""
    check(make(), make())
