"""The measuring command for /health."""

import trio

from flashrt.bench import health
from tests.whole.server import fake_engine, running_server


async def test_it_probes_beside_a_running_answer_and_says_how_often(capsys):
    """A figure from an idle server would say nothing: most probes found a request running."""
    async with running_server(fake_engine(max_seq=60_000)) as server:
        await trio.to_thread.run_sync(health.main, [server.url, "--probes", "20"])

    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("/health"))
    words = line.replace(",", "").split()
    assert int(words[1]) == 20
    assert int(words[3]) >= 10
