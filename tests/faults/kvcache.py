"""Faults in keys and values that have a dtype of their own."""

from tests.faults.fault import Fault

CACHE = ("tests/engine/test_kvcache.py",)
COUNTED = ("tests/engine/test_memory.py",)
HELD = ("tests/engine/test_activations.py",)
STARTED = ("tests/whole/test_process.py::test_keys_and_values_are_kept_as_the_setting_says",)
BOUND = ("tests/bench/engine/test_bounds.py", "tests/bench/engine/test_subject.py")

FAULTS = (
    Fault(
        "a large number that is cut short",
        "flashrt/engine/kvcache.py",
        "FP8_MOST = 448.0",
        "FP8_MOST = 240.0",
        CACHE,
        "values that fit would be stored as others, here and not by the kernels",
    ),
    Fault(
        "an MTP layer that keeps the model's dtype",
        "flashrt/engine/buffers.py",
        "zeros(*kv.shape[1:], of=kv.dtype)",
        "zeros(*kv.shape[1:])",
        (*CACHE, *COUNTED),
        "its rows would take twice what was counted",
    ),
    Fault(
        "an identity that does not know the cache",
        "flashrt/engine/identity.py",
        "kept = kv_dtype or dtype",
        "kept = dtype",
        CACHE,
        "a file of one format would be taken for one of another after a restart (G4)",
    ),
    Fault(
        "an engine that does not tell its identity the cache",
        "flashrt/engine/hybrid.py",
        "identity=identity_of(config, weights, kv_dtype)",
        "identity=identity_of(config, weights)",
        CACHE,
        "a file of one format would be taken for one of another after a restart (G4)",
    ),
    Fault(
        "a restore that converts",
        "flashrt/engine/live.py",
        "    if target.shape != saved.shape or target.dtype != saved.dtype:",
        "    saved = saved.to(target.dtype)\n    if target.shape != saved.shape:",
        CACHE,
        "a state of another format would go on with rows that were never computed so (G4)",
    ),
    Fault(
        "memory that is counted as if keys and values were the model's",
        "flashrt/engine/memory.py",
        "kept = self.placement.kv_dtype",
        "kept = dtype",
        COUNTED,
        "half of the window that fits would be refused",
    ),
    Fault(
        "a conversion of the window that is not counted",
        "flashrt/engine/activations.py",
        "        if self.converted:",
        "        if False:",
        HELD,
        "a long prompt could run out of memory in a window that was said to fit",
    ),
    Fault(
        "a converted head that outlives the next",
        "flashrt/engine/attention.py",
        "        out[:, mine] = attend_block(\n"
        "            q[:, mine].contiguous(), kv[:, head : head + 1, :end].to(q.dtype), position\n"
        "        )",
        "        wide = kv[:, head : head + 1, :end].to(q.dtype)\n"
        "        out[:, mine] = attend_block(q[:, mine].contiguous(), wide, position)",
        HELD,
        "two heads of a long window would be held where one is counted",
    ),
    Fault(
        "a server that does not hear the setting",
        "flashrt/serve.py",
        "        kv_dtype=place.kv_dtype,\n",
        "",
        STARTED,
        "memory would be counted for a cache that is not the one there",
    ),
    Fault(
        "a bound that counts the model's dtype",
        "flashrt/bench/engine/bounds.py",
        "(self.kv_dtype or self.dtype).itemsize",
        "self.dtype.itemsize",
        BOUND,
        "a step over a narrow cache would look quicker than memory",
    ),
)
