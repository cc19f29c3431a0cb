"""The real server over a checkpoint or random weights, whose engine steps are written down.

    python -m flashrt.bench.engine.serving --steps FILE [--model MODEL | --shape SHAPE]

With random weights it speaks the demo's vocabulary and template: its text means nothing.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from flashrt.allocator import settle
from flashrt.bench.engine.subject import loaded_model
from flashrt.bench.overhead.clocked import StepWriter
from flashrt.bench.overhead.paced import ClockedPerformer
from flashrt.demo import DEMO_PATH
from flashrt.engine.activations import Activations
from flashrt.engine.assets import find_model
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.placement import Placement, block_tokens
from flashrt.engine.shapes import SHAPES
from flashrt.serve import SWITCH_INTERVAL_S, load_voice, serve
from flashrt.settings import load


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=Path, required=True, help="file for the times of steps")
    parser.add_argument("--model")
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-seq", type=int, required=True)
    parser.add_argument("--chunk-tokens", default="auto")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve on a free port until a signal; the exit status."""
    asked = parser().parse_args(arguments)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    wishes = {"port": "0", "log_level": "warning", "chunk_tokens": asked.chunk_tokens}
    # Pinning takes its time, and nothing that is measured leaves the device.
    settings = load({**wishes, "host_capsule_budget_mb": "0"}, {})
    voice = load_voice(find_model(asked.model) if asked.model else DEMO_PATH)
    place = Placement.of(asked.device, asked.dtype)
    model = loaded_model(asked.model, asked.shape, asked.seed, place)
    engine = HybridEngine(
        model.config,
        model.weights,
        max_seq=asked.max_seq,
        model_name=asked.model or asked.shape,
        threads=max(1, len(os.sched_getaffinity(0)) - 1),
        sampleable=voice.tokenizer.vocab_size,
    )
    activations = Activations(model.config, place.dtype.itemsize)
    step_bytes = activations.step_bytes(
        block_tokens(str(place.device), settings.chunk_tokens), asked.max_seq
    )
    performer = ClockedPerformer(engine, StepWriter(asked.steps))
    settle()
    return trio.run(
        partial(serve, settings, voice, engine, performer=performer, step_bytes=step_bytes)
    )


if __name__ == "__main__":
    sys.exit(main())
