"""What one client's doings cost another: /health beside streams, and first tokens beside a reader
that has stopped."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from flashrt.bench.overhead.figures import Pair, Spread
from flashrt.bench.overhead.heard import CHAT, Listener, chat
from flashrt.bench.soak.wire import Connection, Place, exchange, request_bytes

STREAMS = 8
PROBE_EVERY_S = 0.005
MEGABYTE = 1 << 20
SMALL_BUFFER_BYTES = 4096
TOO_LARGE_STATUSES = (200, 413)


@attrs.frozen
class Health:
    """`/health` on a quiet server, beside streams, and beside these and bodies of a megabyte.

    `running`: how many probes of the latter two found a request running; `bodies`: were posted.
    """

    quiet: Spread
    streams: Spread
    bodies: Spread
    running: int
    bodies_posted: int


async def health(place: Place, probes: int) -> Health:
    """Probe a real server in all three states."""
    quiet, _ = await _probed(place, probes)
    posted: list[int] = []
    async with _busy(place):
        streams, running = await _probed(place, probes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_post_bodies, place, posted)
            bodies, more = await _probed(place, probes, posted)
            nursery.cancel_scope.cancel()
    return Health(quiet, streams, bodies, running + more, len(posted))


@asynccontextmanager
async def _busy(place: Place) -> AsyncIterator[None]:
    """Streams run for the length of the block."""
    async with trio.open_nursery() as nursery:
        for number in range(STREAMS):
            await nursery.start(_stream, place, number)
        yield
        nursery.cancel_scope.cancel()


async def _stream(
    place: Place, number: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """One answer after the other."""
    listener = await Listener.connect(place)
    task_status.started()
    try:
        while True:
            await listener.hear(chat(f"Story {number}. " * 50, 200))
    finally:
        with trio.CancelScope(shield=True):
            await listener.close()


async def _probed(place: Place, probes: int, posted: list[int] | None = None) -> tuple[Spread, int]:
    """So many times on one connection, and how many found a request running; with `posted`, at
    least until there is a body in it."""
    times_ms: list[float] = []
    connection, running = await Connection.open(place), 0
    while len(times_ms) < probes or (posted is not None and not posted):
        start = time.perf_counter()
        await connection.send(request_bytes(place, "GET", "/health"))
        report = (await connection.reply()).json()
        times_ms.append((time.perf_counter() - start) * 1000)
        running += report["running"] is not None
        await trio.sleep(PROBE_EVERY_S)
    await connection.leave()
    return Spread.of(times_ms), running


async def _post_bodies(place: Place, posted: list[int]) -> None:
    """Each is new, so that nothing of it is known; it is far too long for the window."""
    while True:
        line = f"{len(posted)} lines of code, and no end. "
        message = {"role": "user", "content": line * (MEGABYTE // len(line))}
        body = json.dumps({"model": "any", "messages": [message], "max_tokens": 1}).encode()
        reply = await exchange(place, "POST", CHAT, body)
        if reply.status not in TOO_LARGE_STATUSES:
            raise RuntimeError(f"a body of a megabyte is answered {reply.status}")
        posted.append(reply.status)


async def stopped_reader(place: Place, tokens: int, step_us: int, repeat: int) -> Pair:
    """Time to first token behind somebody who has stopped reading, and behind one who reads."""
    times_ms: dict[bool, list[float]] = {False: [], True: []}
    for number in range(repeat):
        for reads in (number % 2 == 0, number % 2 == 1):  # neither is always the first
            ms = await _first_token_behind(place, tokens, step_us, reads=reads)
            times_ms[reads].append(ms)
    return Pair.of(times_ms[False], times_ms[True])


async def _first_token_behind(place: Place, tokens: int, step_us: int, *, reads: bool) -> float:
    """Milliseconds of a client whose request waits for another's answer of `tokens` tokens."""
    small = 0 if reads else SMALL_BUFFER_BYTES
    first = await Listener.connect(place, receive_buffer_bytes=small)
    second = await Listener.connect(place)
    async with trio.open_nursery() as nursery:
        heard = await first.hear(chat("a long answer", tokens, seed=step_us), until_token=True)
        if reads:
            nursery.start_soon(first.go_on, heard)
        mine = await second.hear(chat("a short one", 1, seed=step_us))
        nursery.cancel_scope.cancel()
    await first.close()
    await second.close()
    return (mine.first_token_at - mine.sent_at) * 1000
