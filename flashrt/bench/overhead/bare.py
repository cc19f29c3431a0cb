"""A bare trio + h11 server: it reads a request and writes chunks of given sizes, and that is all.

    python -m flashrt.bench.overhead.bare --plan PLAN.json --steps FILE

The plan: {"sizes": bytes of each chunk, "step_ms": the wait before each chunk but the first}.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import h11
import trio

from flashrt.bench.overhead.clocked import StepWriter

RECEIVE_BYTES = 64 << 10
HEADERS = [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]


@attrs.frozen
class Plan:
    """What every answer is made of. `step_ms` 0: nothing waits, and no step is written down."""

    sizes: tuple[int, ...]
    step_ms: float


class Bare:
    """One connection after the other, request after request."""

    def __init__(self, plan: Plan, steps: StepWriter) -> None:
        self._plan = plan
        self._steps = steps

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer until the peer has gone."""
        http = h11.Connection(h11.SERVER)
        while await self._request(http, stream):
            await self._answer(http, stream)
            http.start_next_cycle()
        await stream.aclose()

    async def _request(self, http: h11.Connection, stream: trio.SocketStream) -> bool:
        """Read one request to its end; False if none comes."""
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some(RECEIVE_BYTES))
            elif isinstance(event, h11.EndOfMessage):
                return True
            elif isinstance(event, h11.ConnectionClosed):
                return False

    async def _answer(self, http: h11.Connection, stream: trio.SocketStream) -> None:
        response = h11.Response(status_code=200, headers=HEADERS)
        await stream.send_all(http.send(response) or b"")
        for number, size in enumerate(self._plan.sizes):
            if number:
                await self._step()
            await stream.send_all(http.send(h11.Data(data=b"x" * size)) or b"")
        await stream.send_all(http.send(h11.EndOfMessage()) or b"")

    async def _step(self) -> None:
        if self._plan.step_ms:
            start = time.perf_counter()
            await trio.sleep(self._plan.step_ms / 1000)
            self._steps.write(start, time.perf_counter())


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until killed; says where on standard output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--steps", type=Path, required=True, help="file for the times of steps")
    asked = parser.parse_args(arguments)
    fields = json.loads(asked.plan.read_text(encoding="utf-8"))
    bare = Bare(Plan(tuple(fields["sizes"]), fields["step_ms"]), StepWriter(asked.steps))

    async def run() -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        print(f"clients   http://127.0.0.1:{listener.socket.getsockname()[1]}", flush=True)
        await trio.serve_listeners(bare.serve, [listener])

    trio.run(run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
