"""Faults in what `flashrt bench` says of the engine, and in what fits into memory."""

from tests.faults.fault import Fault

DECODE = ("tests/bench/engine/test_decode.py",)
DRAFTING = ("tests/bench/engine/test_drafting.py",)
BOUNDS = ("tests/bench/engine/test_bounds.py",)
TURN = ("tests/bench/engine/test_turn.py",)
MEMORY = ("tests/engine/test_memory.py",)
ACTIVATIONS = ("tests/engine/test_activations.py",)

FAULTS = (
    Fault(
        "an oracle that has every draft right",
        "flashrt/bench/engine/drafting.py",
        "for id_ in ids[self.right :])",
        "for id_ in ids[self.count :])",
        DRAFTING,
        "tokens a second would be those of another acceptance",
    ),
    Fault(
        "an imposed acceptance that nobody checks",
        "flashrt/bench/engine/drafting.py",
        "        if len(tokens) != right + 1:",
        "        if False:",
        DRAFTING,
        "an oracle with the wrong text would be timed as if it were right",
    ),
    Fault(
        "drafts that cost nothing",
        "flashrt/bench/engine/drafting.py",
        "        done = self.drafting.propose(journal, room)",
        "        done = self.oracle.propose(journal, room)",
        DRAFTING,
        "the MTP layer's work would be missing in the figure that is about it",
    ),
    Fault(
        "tokens a second of steps that did not count",
        "flashrt/bench/engine/decode.py",
        "sum(ids[WARM_UP:])",
        "sum(ids)",
        DECODE,
        "a short run would look quicker than a long one",
    ),
    Fault(
        "a bound without keys and values",
        "flashrt/bench/engine/bounds.py",
        "state + c.layer_types.count(FULL) * self._kv_bytes(context)",
        "state",
        BOUNDS,
        "32k tokens would seem to cost the same as none",
    ),
    Fault(
        "a mixture whose every expert is read",
        "flashrt/bench/engine/bounds.py",
        "return math.ceil(size * (1 - missed))",
        "return size",
        BOUNDS,
        "the bound would be above what is measured",
    ),
    Fault(
        "a server's share that has the engine's time in it",
        "flashrt/bench/engine/turn.py",
        "return own_seconds([*self.steps], self.heard.sent_at, self.heard.at[-1]) * 1e3",
        "return own_seconds([*self.steps[1:2]], self.heard.sent_at, self.heard.at[-1]) * 1e3",
        TURN,
        "what the engine takes would be blamed on HTTP",
    ),
    Fault(
        "a window without room for a saved state",
        "flashrt/engine/memory.py",
        "capsules=(capsule if auto else 0) if",
        "capsules=0 if",
        MEMORY,
        "every side request would cost the conversation",
    ),
    Fault(
        "rotary tables that nobody counts",
        "flashrt/engine/memory.py",
        "state=buffers.nbytes + self._tables(max_seq),",
        "state=buffers.nbytes,",
        MEMORY,
        "a window would be taken for one that fits",
    ),
    Fault(
        "a window that is one step too short",
        "flashrt/engine/memory.py",
        "        while above - fits > 1:",
        "        while above - fits > 2:",
        MEMORY,
        "memory would lie idle",
    ),
    Fault(
        "a refusal that nobody hears",
        "flashrt/engine/memory.py",
        "    if not asked.fits:",
        "    if False:",
        MEMORY,
        "the start would fail where memory ends, after minutes of loading",
    ),
    Fault(
        "chunks of a prompt that hold nothing",
        "flashrt/engine/activations.py",
        "max(self._chunks(rows), norming)",
        "norming",
        ACTIVATIONS,
        "a long prompt would run out of memory while a client waits",
    ),
    Fault(
        "a captured graph that no record has",
        "flashrt/worker.py",
        "batch.item.record.graph_capture_count += batch.graph_captures",
        "batch.item.record.graph_capture_count += 0",
        ("tests/whole/test_graph_captures.py",),
        "somebody would wait for what belongs to the start, and nobody would know",
    ),
)
