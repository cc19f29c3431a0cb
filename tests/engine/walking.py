"""Generated calls of an engine in any order, and what a caller sees of each."""

from collections.abc import Iterator

import attrs
from hypothesis import strategies as st

from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import ContextFull, EngineMisuse, SamplingParams
from tests.engine.contract import fill, same_capsule
from tests.engine.models import ids

GREEDY = SamplingParams(draft_tokens=0)
WAYS = {
    "greedy": GREEDY,
    "drafted": SamplingParams(draft_tokens=2),
    "seeded": SamplingParams(temperature=1.0, seed=3, draft_tokens=0),
}

COUNTS = st.integers(1, 9)
ACTS = st.one_of(
    st.tuples(st.just("decode"), st.integers(1, 40), st.just("greedy")),
    st.tuples(st.just("decode"), COUNTS, st.sampled_from(list(WAYS))),
    st.tuples(st.just("prefill"), COUNTS, st.integers(0, 3)),
    st.tuples(st.just("rollback"), st.integers(0, 66)),
    st.tuples(st.just("drop")),
    st.tuples(st.just("save"), st.none() | st.integers(0, 20)),
    st.tuples(st.just("restore"), st.integers(0, 9)),
    st.tuples(st.just("resume")),
    st.tuples(st.just("stop"), st.integers(0, 4)),
    st.tuples(st.just("reset")),
)


@attrs.define
class Walk:
    """Calls of an engine one after the other; each tells what a caller sees of it."""

    engine: HybridEngine
    capsules: list = attrs.field(factory=list)
    open: Iterator = attrs.field(factory=lambda: iter(()))

    def act(self, name: str, *arguments: object) -> object:
        """The result of a call or its refusal, and where the engine then stands."""
        try:
            told = getattr(self, name)(*arguments)
        except (EngineMisuse, ContextFull) as refusal:
            told = str(refusal)
        return told, self.engine.position, tuple(self.engine.journal)

    def decode(self, count: int, way: str) -> object:
        """So many steps, and the generator left open."""
        self.open = self.engine.decode(WAYS[way])
        return [chunk.tokens for _, chunk in zip(range(count), self.open, strict=False)]

    def resume(self) -> object:
        """One step more of the newest decode, if nothing came between."""
        return [chunk.tokens for _, chunk in zip(range(1), self.open, strict=False)]

    def stop(self, id_: int) -> object:
        """At most 30 ids, up to one that stops."""
        params = attrs.evolve(GREEDY, stop_ids=frozenset({id_}))
        steps = zip(range(30), self.engine.decode(params), strict=False)
        return [chunk.tokens for _, chunk in steps]

    def prefill(self, count: int, seed: int) -> object:
        """Ids of a text that begins anew each time."""
        return fill(self.engine, ids(count, 5, seed))

    def rollback(self, count: int) -> object:
        """By so many ids."""
        return self.engine.rollback(count)

    def drop(self) -> object:
        """The pending id."""
        return self.engine.drop_pending()

    def save(self, back: int | None) -> object:
        """Here, or so many ids back."""
        length = None if back is None else self.engine.position - back
        size = self.engine.snapshot_bytes(length)
        self.capsules.append(self.engine.snapshot(length))
        return size

    def restore(self, index: int) -> object:
        """One of the newest capsules, if there is one."""
        for capsule in self.capsules[-1 - index :][:1]:
            self.engine.restore(capsule)
        return None

    def reset(self) -> object:
        """Everything."""
        return self.engine.reset()


def check_walk(engines: tuple[HybridEngine, HybridEngine], start: int, acts: list) -> None:
    """Both engines tell the same of every call, and end with the same bytes."""
    walks = [Walk(one) for one in engines]
    for act in (("reset",), ("prefill", start, 0), ("decode", 2, "greedy"), *acts, ("save", None)):
        told = [walk.act(*act) for walk in walks]
        assert told[0] == told[1], act
    for capsules in zip(*(walk.capsules for walk in walks), strict=True):
        assert same_capsule(*capsules)


STARTS = st.one_of(st.integers(1, 9), st.integers(55, 66), st.integers(120, 130))
LISTS = st.lists(ACTS, min_size=1, max_size=12)
