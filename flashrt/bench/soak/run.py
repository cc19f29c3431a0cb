"""Random clients against a server: python -m flashrt.bench.soak [--url URL].

They converse, branch, edit, hang up, read slowly, and send garbage, large and wrong requests. Every
answer is checked, finished greedy ones against a cold reference, and at the end that nothing is
left over. Without --url two server processes are started on the demo checkpoint: the one under test
and the reference. A server at --url must have no other clients, and is its own reference once it is
quiet. The exit status is 1 if any guarantee did not hold. The same seed and number of clients do
the same again; what meets a full queue depends on time.
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import trio

from flashrt.bench.soak import quiet
from flashrt.bench.soak.actions import drawn
from flashrt.bench.soak.client import Client, Compared, Target
from flashrt.bench.soak.process import (
    FOR_REFERENCE,
    RSS_FROM_ACTION,
    STALL_S,
    UNDER_TEST,
    ServerProcess,
    growth,
    leftovers,
    server_process,
)
from flashrt.bench.soak.reference import Reference
from flashrt.bench.soak.report import Outcome
from flashrt.bench.soak.tally import Tally, Violation
from flashrt.bench.soak.wire import Fault, Gone, Place

ACTION_WITHIN_S = 90
"""An action that takes longer is stuck: whole queues are served in a few seconds."""

VIOLATIONS_MAX = 100
"""A server that is broken altogether need not be asked for all of it."""

PROGRESS_EVERY = 500
USAGE_EVERY = 1000
WARMING_REQUESTS = 3


@attrs.frozen
class Options:
    """What is to be done. `near`, see `reference`; `stall_s`: of a server at `url`."""

    url: str | None
    key: str
    clients: int
    actions: int
    seconds: float
    seed: int
    near: float
    stall_s: float
    server_log: Path | None = None


def place_of(url: str, key: str) -> Place:
    """Where a URL leads to. Raises ValueError for what is no plain HTTP."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{url!r} is not like http://127.0.0.1:8000")
    return Place(parts.hostname, parts.port or 80, key)


async def soak(options: Options) -> Outcome:
    """Start servers if need be, and let the clients at them. Raises Fault if there is none."""
    if options.url is not None:
        place = place_of(options.url, options.key)
        return await _Soak(options, place, place, None).run()
    key = f"soak-{random.Random(options.seed).randrange(1 << 30)}"
    async with (
        server_process(UNDER_TEST, key, options.server_log) as server,
        server_process(FOR_REFERENCE) as reference,
    ):
        own = attrs.evolve(options, stall_s=STALL_S)
        return await _Soak(own, server.place, reference.place, server).run()


class _Soak:
    """One soak. `process`: the server's, if it is ours."""

    def __init__(
        self, options: Options, place: Place, reference: Place, process: ServerProcess | None
    ) -> None:
        self._options = options
        self._place = place
        self._process = process
        self._reference = Reference(reference, options.near)
        self._tally = Tally()
        self._outcome = Outcome(options.seed, options.clients, self._tally)
        self._ends_at = math.inf

    async def run(self) -> Outcome:
        """All of it, in order."""
        async with trio.open_nursery() as nursery:
            for _ in range(WARMING_REQUESTS):
                nursery.start_soon(quiet.plain_request, self._place)
        before = await quiet.health(self._place)
        if self._process is not None:
            self._outcome.usage["at the start"] = await self._process.at_rest()
        send, receive = trio.open_memory_channel[Compared](math.inf)
        target = Target(
            place=self._place,
            tally=self._tally,
            documented=await quiet.documented(self._place),
            window=await quiet.window(self._place),
            stall_s=self._options.stall_s,
            compare=send.send_nowait,
        )
        async with trio.open_nursery() as nursery:
            if self._process is not None:
                nursery.start_soon(self._reference.run, receive, self._tally.violations)
            with send:
                await self._clients(target)
                await self._afterwards(before)
            if self._process is None:
                nursery.start_soon(self._reference.run, receive, self._tally.violations)
        self._outcome.equal = self._reference.equal
        self._outcome.near_ties = self._reference.near_ties
        return self._outcome

    async def _clients(self, target: Target) -> None:
        start = trio.current_time()
        self._ends_at = start + self._options.seconds
        async with trio.open_nursery() as nursery:
            for number in range(self._options.clients):
                nursery.start_soon(self._live, Client(number, target))
        self._outcome.seconds = trio.current_time() - start
        self._read_usage(f"after action {self._tally.finished}")

    async def _live(self, client: Client) -> None:
        """One client's actions: every n-th of all."""
        options = self._options
        for number in range(client.number, options.actions, options.clients):
            if trio.current_time() >= self._ends_at or self._broken:
                break
            await self._act(client, number)
        await client.hang_up()

    @property
    def _broken(self) -> bool:
        dead = self._process is not None and self._process.dead
        return dead or len(self._tally.violations) >= VIOLATIONS_MAX

    async def _act(self, client: Client, number: int) -> None:
        has_key = bool(client.target.place.key)
        action, rng = drawn(self._options.seed, number, has_key=has_key)
        client.action, client.name = number, action.name
        start = time.perf_counter()
        try:
            with trio.fail_after(ACTION_WITHIN_S):
                await action.run(client, rng)
        except trio.TooSlowError:
            await self._wrong(client, f"not over after {ACTION_WITHIN_S} s")
        except (Fault, Gone, OSError) as error:
            await self._wrong(client, str(error))
        except Exception as error:  # an answer of a shape that nobody foresaw
            await self._wrong(client, repr(error))
        self._tally.took(action.name, (time.perf_counter() - start) * 1000)
        self._note_progress()

    async def _wrong(self, client: Client, what: str) -> None:
        violation = Violation(client.action, client.name, client.number, what)
        self._tally.violations.append(violation)
        await client.hang_up()

    def _note_progress(self) -> None:
        finished = self._tally.finished
        if finished % USAGE_EVERY == 0:
            self._read_usage(f"after action {finished}")
        if finished % PROGRESS_EVERY == 0:
            found = len(self._tally.violations)
            print(f"{finished} actions, {found} violations", file=sys.stderr, flush=True)

    def _read_usage(self, when: str) -> None:
        if self._process is not None:
            self._outcome.usage[when] = self._process.usage()

    async def _afterwards(self, before: dict[str, object]) -> None:
        records = self._tally.records
        self._outcome.counted, wrong = await quiet.all_left(self._place, before, records)
        self._note("afterwards", wrong)
        if self._process is not None:
            self._note("process", await self._leftovers(self._process))

    async def _leftovers(self, process: ServerProcess) -> list[str]:
        """What the process still holds, and how it ends."""
        if process.dead:
            self._outcome.exit_status = process.process.returncode
            return [f"the server has ended with status {self._outcome.exit_status}"] + [
                f"its log has a traceback: {last}" for last in process.tracebacks()
            ]
        usage = self._outcome.usage
        start, late = usage["at the start"], usage[f"after action {self._tally.finished}"]
        usage["at the end"] = await process.settled(start)
        early = usage.get(f"after action {RSS_FROM_ACTION}", late)
        wrong = leftovers(start, usage["at the end"]) + growth(early, late)
        try:
            self._outcome.exit_status = await process.stop()
        except Fault as fault:
            return [*wrong, str(fault)]
        if self._outcome.exit_status != 0:
            wrong.append(f"exit status {self._outcome.exit_status} on SIGTERM")
        return wrong + [f"the server's log has a traceback: {x}" for x in process.tracebacks()]

    def _note(self, name: str, wrong: list[str]) -> None:
        self._tally.violations += [Violation(-1, name, -1, what) for what in wrong]


def _count(text: str) -> int:
    """A number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the verdict; the exit status."""
    words = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=words)
    parser.add_argument("--url", help="a server that already runs, such as http://127.0.0.1:8000")
    parser.add_argument("--api-key", default="", help="the key of the server at --url")
    parser.add_argument("--clients", type=_count, default=8)
    parser.add_argument("--actions", type=_count, default=10_000, help="of all clients together")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no action later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--near",
        type=float,
        default=2e-4,
        help="log-probabilities that may come in either order; that is for float32",
    )
    parser.add_argument("--stall-s", type=float, default=30, help="--client-stall-s of --url")
    parser.add_argument(
        "--server-log", type=Path, metavar="FILE", help="keep the log of our own server there"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = vars(parser.parse_args(arguments))
    file = asked.pop("json")
    try:
        if asked["url"] is not None:
            place_of(asked["url"], "")
        if file is not None:
            file.open("a").close()
    except (ValueError, OSError) as error:
        parser.error(str(error))
    options = Options(key=asked.pop("api_key"), **asked)
    outcome = None
    try:
        outcome = trio.run(soak, options)
    except* (Fault, Gone, OSError) as group:
        print(f"there is no server to soak: {group.exceptions[0]}", file=sys.stderr)
    if outcome is None:
        return 1
    print("\n".join(outcome.lines()))
    if file is not None:
        file.write_text(json.dumps(outcome.as_json(), indent=1) + "\n", encoding="utf-8")
    return 1 if outcome.tally.violations else 0
