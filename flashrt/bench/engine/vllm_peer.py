"""The same shape by vLLM, in a process of its own: it takes most of the device's memory.

    python -m flashrt.bench.engine.vllm_peer < WORK > TIMES

The work is JSON: `model` (a folder; its weights are made up if it has none), `dtype`, `max_seq`,
`steps`, and `prompts`, lists of ids. The last line of the output is JSON: per prompt the
milliseconds to its first id, and for each of `steps` further ones.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # greedy does not use it, and it would be compiled first
}
MEMORY_SHARE = 0.9


def settings_of(work: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's arguments: one sequence, every prompt read from its beginning, no tokenizer."""
    has_weights = any(Path(work["model"]).glob("*.safetensors"))
    return {
        "model": work["model"],
        "dtype": work["dtype"],
        "load_format": "auto" if has_weights else "dummy",
        "skip_tokenizer_init": True,
        "language_model_only": True,
        "max_num_seqs": 1,
        "max_model_len": work["max_seq"],
        "max_num_batched_tokens": min(8192, work["max_seq"]),
        "enable_prefix_caching": False,
        "gpu_memory_utilization": MEMORY_SHARE,
        "seed": 0,
    }


def measure(engine: Any, sampling: Any, work: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Per prompt: milliseconds to the first id, and for each further one.

    The latter is what an answer of `steps` more ids takes longer than one of a single id.
    """

    def wall_ms(prompt: Sequence[int], count: int) -> float:
        params = sampling(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        engine.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
        return (time.perf_counter() - start) * 1e3

    times, steps = [], work["steps"]
    for prompt in work["prompts"]:
        first = wall_ms(prompt, 1)
        times.append((first, (wall_ms(prompt, 1 + steps) - first) / steps))
    return times


def main() -> int:
    """Read the work, do it, and write the times."""
    os.environ.update(ENVIRONMENT)
    from vllm import LLM, SamplingParams

    work = json.load(sys.stdin)
    times = measure(LLM(**settings_of(work)), SamplingParams, work)
    print(json.dumps(times))
    return 0


if __name__ == "__main__":
    sys.exit(main())
