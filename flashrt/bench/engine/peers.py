"""`flashrt bench peers`: the same prompts by our engine, by transformers, and by vLLM.

All greedy and one sequence at a time, the same prompt ids in the same dtype on the same device.
"""

import gc
import importlib.util
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from flashrt.bench.engine.bounds import Bounds
from flashrt.bench.engine.hf_form import whole_config
from flashrt.bench.engine.machine import version
from flashrt.bench.engine.options import Options
from flashrt.bench.engine.rates import measured
from flashrt.bench.engine.report import Figure, Report, begun
from flashrt.bench.engine.subject import GREEDY, Subject
from flashrt.engine.assets import find_model

IDS = 33
"""Decoded behind each prompt: one by the prompt, the others a step each."""

Times = tuple[tuple[int, ...], list[float]]
Prompts = Mapping[int, Sequence[tuple[int, ...]]]
"""By length."""


def report(options: Options) -> Report:
    """Print and return it. Raises CannotServe."""
    subject = Subject.of(options, max(options.context) + IDS)
    rates = measured(subject.clock, subject.dtype)
    found = begun("peers", options, subject.clock.device, subject.dtype, rates)
    bounds = subject.bounds(rates)
    prompts = {
        length: [subject.ids(length) for _ in range(options.repeat + 1)]
        for length in options.context
    }
    ours = _ours(subject, prompts)
    for figure in figures("flashrt", ours, bounds):
        found.add(figure)
    _add_transformers(subject, options, prompts, ours, bounds, found)
    del subject
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    _add_vllm(options, prompts, bounds, found)
    return found


def _ours(subject: Subject, prompts: Prompts) -> dict[int, list[Times]]:
    return {length: [run(subject, one, IDS) for one in some] for length, some in prompts.items()}


def run(subject: Subject, prompt: Sequence[int], count: int) -> Times:
    """The `count` ids behind a prompt, and the milliseconds up to each since the one before."""
    ids: list[int] = []
    subject.engine.reset()
    moments = [subject.clock.now()]
    subject.fill(prompt)
    for chunk in itertools.islice(subject.engine.decode(GREEDY), count):
        ids += chunk.tokens
        moments.append(subject.clock.on_host())
    return tuple(ids), [(b - a) * 1e3 for a, b in itertools.pairwise(moments)]


def figures(who: str, runs: Mapping[int, Sequence[Times]], bounds: Bounds) -> Iterator[Figure]:
    """The first prompt of each length warms up and is not counted."""
    for length, some in runs.items():
        counted = [times for _, times in some[1:]]
        first = [times[0] for times in counted]
        # A step is timed where it follows another one.
        steps = [ms for times in counted for ms in times[2:]]
        yield Figure.of(f"{who}: cold prompt", length, first, bounds.prompt_ms(length))
        yield Figure.of(f"{who}: each further id", length, steps, bounds.step_ms(1, length))


def _add_transformers(
    subject: Subject,
    options: Options,
    prompts: Prompts,
    ours: Mapping[int, Sequence[Times]],
    bounds: Bounds,
    found: Report,
) -> None:
    if importlib.util.find_spec("transformers") is None:
        found.note("transformers is not installed")
        return
    from flashrt.bench.engine import transformers_peer

    if options.model is None:
        peer = transformers_peer.over(subject.config, subject.tensors, subject.dtype, subject.clock)
    else:
        folder = str(find_model(options.model))
        peer = transformers_peer.load(folder, subject.dtype, subject.clock)
    theirs = {length: [peer.run(one, IDS) for one in some] for length, some in prompts.items()}
    for figure in figures(peer.name.split()[0], theirs, bounds):
        found.add(figure)
    pairs = [
        a == b
        for length in prompts
        for (mine, _), (other, _) in zip(ours[length], theirs[length], strict=True)
        for a, b in zip(mine, other, strict=True)
    ]
    found.note(
        f"{peer.name}: the same weights, prompts and dtype, a prompt in one pass; "
        f"{sum(pairs)} of {len(pairs)} greedy ids equal ours"
    )


def _add_vllm(options: Options, prompts: Prompts, bounds: Bounds, found: Report) -> None:
    if importlib.util.find_spec("vllm") is None:
        found.note("vLLM is not installed here")
        return
    dtype = str(bounds.dtype).removeprefix("torch.")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) if options.model is None else find_model(options.model)
        if options.model is None:
            (folder / "config.json").write_text(json.dumps(whole_config(bounds.config, dtype)))
        flat = [list(prompt) for some in prompts.values() for prompt in some]
        work = {
            "model": str(folder),
            "dtype": dtype,
            "max_seq": max(map(len, flat)) + IDS,
            "steps": IDS - 1,
            "prompts": flat,
        }
        ran = subprocess.run(
            [sys.executable, "-m", "flashrt.bench.engine.vllm_peer"],
            input=json.dumps(work),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    if ran.returncode:
        found.note(f"vLLM {version('vllm')} ended with status {ran.returncode}")
        return
    times = iter(json.loads(ran.stdout.splitlines()[-1]))
    for length, some in prompts.items():
        first, step = zip(*itertools.islice(times, len(some)), strict=True)
        found.add(Figure.of("vllm: cold prompt", length, first[1:], bounds.prompt_ms(length)))
        found.add(Figure.of("vllm: each further id", length, step[1:], bounds.step_ms(1, length)))
    weights = "weights of its own making" if options.model is None else "the same checkpoint"
    found.note(f"vLLM {version('vllm')}: the same shape, prompts and dtype, {weights}")
