"""What saved states cost by where they lie: python -m flashrt.bench.tiers [MODEL].

Time to the first token behind a prompt that is read from 0, and behind a state that is restored
from the device, from the host's memory and from disk; and how much longer decode takes while states
are copied to the host, one behind the other, and written to disk beside it. The server begins
copies between two requests only, so this is the most that they can take. Files that were just
written are read from the system's cache, as after a restart of the server, not from a cold disk.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from flashrt.bench.reuse import CHUNK_TOKENS, ROOM
from flashrt.demo import DEMO_PATH
from flashrt.disk import CapsuleDirectory
from flashrt.engine.assets import find_model
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.placement import Placement
from flashrt.engine.protocol import Capsule, SamplingParams
from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.entries import Entry, FileState
from flashrt.policy.lifting import restored
from flashrt.policy.spacing import Kind
from flashrt.policy.steps import Performer
from flashrt.policy.tiers import Tier
from flashrt.shelf import DiskShelf

GREEDY = SamplingParams(draft_tokens=0)
WAIT_S = 60.0
COLUMNS = ("cold", *(tier.value for tier in Tier))


class Bench:
    """One engine, and stores that have it in one tier and no other."""

    def __init__(self, engine: HybridEngine, directory: Path, seed: int = 1) -> None:
        self.engine = engine
        self._performer = Performer(engine)
        self._rng = random.Random(seed)
        self.moved_bytes = 0
        identity = engine.info.identity
        self.shelf = DiskShelf(CapsuleDirectory(directory, identity, None), wait_s=WAIT_S)
        self._stores = {
            Tier.DEVICE: CapsuleStore(ROOM),
            Tier.HOST: CapsuleStore(ROOM, ROOM, engine),
            Tier.DISK: CapsuleStore(ROOM, 0, engine, self.shelf),
        }

    def ids(self, count: int) -> list[int]:
        """Random ids of the vocabulary."""
        return [self._rng.randrange(self.engine.info.vocab_size) for _ in range(count)]

    def first_token_ms(self, reach: Callable[[], None]) -> float:
        """From an empty engine."""
        self.engine.reset()
        start = time.perf_counter()
        reach()
        next(self.engine.decode(GREEDY))
        return (time.perf_counter() - start) * 1000

    def measure(self, length: int, repeat: int) -> dict[str, float]:
        """Medians, milliseconds. The first time of each warms up and is not counted."""
        ids, times = self.ids(length), {}
        for tier, store in self._stores.items():
            self._read(ids)
            entry = _kept(store, self.engine.snapshot())
            taken = []
            for _ in range(repeat + 1):
                self._move(store, entry, tier)
                taken.append(self.first_token_ms(lambda s=store, e=entry: self._restore(s, e)))  # type: ignore[misc]
            times[tier.value] = statistics.median(taken[1:])
            store.drop(entry)
        cold = [self.first_token_ms(lambda: self._read(ids)) for _ in range(repeat + 1)]
        return {"cold": statistics.median(cold[1:]), **times}

    def decode_ms(self, tokens: int, beside: Callable[[], None]) -> float:
        """Median milliseconds a token; `beside` is called before each."""
        self._read(self.ids(64))
        self.moved_bytes = 0
        at: list[float] = []
        for _ in self.engine.decode(GREEDY):
            at.append(time.perf_counter())
            if len(at) > tokens:
                break
            beside()
        return statistics.mean(later - earlier for earlier, later in pairwise(at)) * 1000

    def copying(self, capsule: Capsule) -> Callable[[], None]:
        """Copies to the host, one after the other."""
        under_way = self.engine.to_host(capsule.rows[0].buffers)

        def beside() -> None:
            nonlocal under_way
            if under_way.done:
                self.moved_bytes += capsule.rows[0].block_bytes
                under_way = self.engine.to_host(capsule.rows[0].buffers)

        return beside

    def filing(self, capsules: Iterator[Capsule]) -> Callable[[], None]:
        """Copies to the host and files, as the server makes them."""
        store = self._stores[Tier.DISK]

        def beside() -> None:
            if not store.write_behind():
                for entry in store.entries():
                    self.moved_bytes += entry.capsule.capsule_bytes
                    store.drop(entry)
                _kept(store, next(capsules))

        return beside

    def take_room(self, length: int) -> None:
        """Host memory for what is measured, as a server takes it at start."""
        self._read(self.ids(length))
        self.engine.take_host(4 * self.engine.snapshot_bytes())

    def taken(self, length: int) -> Iterator[Capsule]:
        """Further capsules of one size."""
        while True:
            self._read(self.ids(length))
            yield self.engine.snapshot()

    # -- inside ----------------------------------------

    def _read(self, ids: Sequence[int]) -> None:
        self.engine.reset()
        for _ in self.engine.prefill(ids, tuple(range(CHUNK_TOKENS, len(ids), CHUNK_TOKENS))):
            pass

    def _restore(self, store: CapsuleStore, entry: Entry) -> None:
        steps = restored(store, entry)
        step = next(steps, None)
        while step is not None:
            try:
                step = steps.send(self._performer.perform(step))
            except StopIteration:
                return

    def _move(self, store: CapsuleStore, entry: Entry, tier: Tier) -> None:
        """To where it is restored from."""
        while tier is Tier.DISK and entry.file is not FileState.WHOLE:
            store.write_behind()
            self.shelf.wait_for_one(WAIT_S)
        if tier is not Tier.DEVICE:
            assert store.evict_lru() is entry
        assert entry.tier is tier, f"{entry.tier} is not {tier}"


def _kept(store: CapsuleStore, capsule: Capsule) -> Entry:
    entry = store.put(capsule, namespace="a", session="s", kind=Kind.COMMITTED, turn=1, lineage=())
    assert entry is not None, "there is room for it"
    return entry


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each length, and then what decode pays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="checkpoint; without it the bundled demo")
    parser.add_argument("--prefix", type=int, nargs="+", default=[1000, 4000, 16000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200, help="decoded beside copies")
    parser.add_argument("--directory", help="where files are written; a temporary one without it")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    asked = parser.parse_args(arguments)
    path = Path(find_model(asked.model)) if asked.model else DEMO_PATH
    place = Placement.of(asked.device, asked.dtype)
    max_seq = max(*asked.prefix, asked.tokens + 64) + 8
    engine = HybridEngine.load(path, device=place.device, dtype=place.dtype, max_seq=max_seq)
    with tempfile.TemporaryDirectory(dir=asked.directory) as directory:
        _print(Bench(engine, Path(directory) / "capsules"), asked)


def _print(bench: Bench, asked: argparse.Namespace) -> None:
    bench.take_room(max(asked.prefix))
    print(f"{'prefix':>8} {'MiB':>8}", *(f"{name + ' ms':>10}" for name in COLUMNS))
    for length in asked.prefix:
        got = bench.measure(length, asked.repeat)
        size = next(bench.taken(length)).capsule_bytes / 2**20
        print(f"{length:>8} {size:>8.1f}", *(f"{got[name]:>10.1f}" for name in COLUMNS))
    longest = max(asked.prefix)
    capsules = [next(bench.taken(longest)) for _ in range(2)]
    alone = bench.decode_ms(asked.tokens, lambda: None)
    ways = {
        "copies to the host": bench.copying(capsules[0]),
        "copies and files": bench.filing(iter(capsules * asked.tokens)),
    }
    for name, beside in ways.items():
        ms = bench.decode_ms(asked.tokens, beside)
        share, rate = max(0.0, 1 - alone / ms), bench.moved_bytes / (ms * asked.tokens) / 1e6
        print(
            f"decode {alone:.2f} ms a token, {ms:.2f} beside {name} ({rate:.2f} GB/s): "
            f"{share:.1%} of its time"
        )
    bench.shelf.flush(WAIT_S)
    bench.shelf.close()


if __name__ == "__main__":
    main()
