"""Trains the demo: `python -m flashrt.demo.training.train --out DIR --minutes 18`.

With `--resume` it goes on from DIR/state.pt or, where only that was kept, from DIR/light.pt: the
weights in bfloat16 without the optimizer, and the rates warm up once more. The learning rate
follows the clock (the training time of all runs together), or the steps where `--total-steps` is
given: such a run is exactly repeatable, however it is cut into pieces.

On N GPUs of one machine: `torchrun --nproc-per-node N -m flashrt.demo.training.train ...`. The
steps are the same, each made by all of them together.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from flashrt.demo import DEMO_PATH
from flashrt.demo.make import model_config
from flashrt.demo.training.graphs import Body
from flashrt.demo.training.net import Net
from flashrt.demo.training.optim import MuonAdam
from flashrt.demo.training.pack import pack
from flashrt.demo.training.ranks import Ranks
from flashrt.demo.training.rendering import load_tokenizer
from flashrt.demo.training.rows import OWN, Job, Loader
from flashrt.engine.config import parse_config

WARM_STEPS = 60
DECAY_FROM = 0.45
"""Fraction of the whole from which on the rates go down, in a line, to nothing."""

LENGTHS: list[tuple[float, list[int]]] = [
    (0.10, [1024]),
    (0.45, [1024, 2048, 1024, 4096, 1024]),
    (math.inf, [1024, 4096, 2048, 16384, 1024, 8192, 2048, 16384]),
]
"""Until this fraction of the whole, rows of these lengths, in turn. Plans look ahead of it."""

MTP_WEIGHT = 0.3
DEPTHS = (1, 1, 1, 3)
"""How many steps ahead the MTP layer feeds itself, step by step in turn."""

CLIP = 1.0
SAVE_SECONDS = 120.0


@attrs.define
class Progress:
    """Where a run stands."""

    step: int = 0
    seconds: float = 0.0
    """Of training, in all runs before this one."""
    tokens: int = 0
    empty_at: int = 0
    """The step at which the optimizer began without a past."""


class Trainer:
    """One run on one device, or one of several on a device each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.o = options
        self.tokenizer = DEMO_PATH / "tokenizer.json"
        self.loader = Loader(self.tokenizer, options.workers)  # forks, so before any GPU
        self.ranks = Ranks.join()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        ids = load_tokenizer(self.tokenizer).get_vocab()
        self.config = model_config(len(ids), ids["<|endoftext|>"], options.size)
        self.net = Net(parse_config(self.config), options.seed).to(self.device)
        for p in self.net.parameters():  # one place for good: recorded graphs add to it
            p.grad = torch.zeros_like(p)
        self.body = Body(self.net)
        self.optimizer = MuonAdam(self.net)
        self.at = Progress()
        self.started = time.monotonic()
        self.file = options.out / "state.pt"
        self.light = options.out / "light.pt"
        kept = [file for file in (self.file, self.light) if file.exists()]
        if options.resume and kept:
            self._load(kept[0])

    @property
    def seconds(self) -> float:
        """Of training so far, this run's included."""
        return self.at.seconds + time.monotonic() - self.started

    @property
    def fraction(self) -> float:
        """Of the whole schedule."""
        if self.o.total_steps:
            return self.at.step / self.o.total_steps
        return min(1.0, self.seconds / (60 * self.o.total_minutes))

    def run(self) -> None:
        """Until this run's time or the whole schedule is over; saves at the end."""
        self.started = begun = time.monotonic()
        saved = told = begun
        window: list[dict[str, float]] = []
        ahead = 2 if self.o.workers == 0 else 6
        for ids, weights in self.loader.batches(self._plans(), ahead):
            now = time.monotonic()
            over = self.fraction >= 1 or now - begun > 60 * self.o.minutes or self._paused()
            fraction, stop = self.ranks.agreed(self.fraction, over)
            if stop:
                break
            window.append(self._step(ids, weights, self._rate(fraction)))
            if now - told > self.o.tell or self.at.step == 1:
                self._tell(window, ids.shape)
                window, told = [], now
            if now - saved > SAVE_SECONDS:
                self._save()
                saved = now
        if window:
            self._tell(window, ids.shape)
        self._save()
        self.loader.close()
        self._pack()
        self.ranks.leave()

    def _pack(self) -> None:
        if self.ranks.rank:
            return
        size = pack(self.net.state_dict(), self.config, self.tokenizer, self.o.out / "checkpoint")
        print(f"packed {size} bytes; fraction {self.fraction:.3f}", flush=True)

    def _paused(self) -> bool:
        return bool(self.o.stop_at) and self.at.step >= self.o.stop_at

    def _plans(self) -> Iterator[list[Job]]:
        """What each step reads. Asked a few steps ahead of the step under way."""
        step = self.at.step
        while True:
            fraction = step / self.o.total_steps if self.o.total_steps else self.fraction
            lengths = next(lengths for until, lengths in LENGTHS if fraction < until)
            length = min(self.o.longest, lengths[step % len(lengths)])
            rows = max(self.ranks.count, self.o.batch_tokens // length)
            mine = range(self.ranks.rank, rows, self.ranks.count)
            yield [(self.o.seed, step * rows + i, length) for i in mine]
            step += 1

    def _rate(self, fraction: float) -> float:
        warm = min(1.0, (self.at.step - self.at.empty_at + 1) / WARM_STEPS)
        left = min(1.0, (1 - fraction) / (1 - DECAY_FROM))
        return warm * max(0.0, left)

    def _step(self, ids: np.ndarray, weights: np.ndarray, factor: float) -> dict[str, float]:
        """One update, at `factor` of the full rates."""
        depth = DEPTHS[self.at.step % len(DEPTHS)]
        said = self._gradients(ids, weights, depth)
        self.ranks.add_gradients(self.net)
        norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), CLIP)
        if torch.isfinite(norm):
            self.optimizer.step(factor)
        else:
            print(f"step {self.at.step}: gradients are not finite, left out", flush=True)
        self.net.zero_grad(set_to_none=False)
        self.at.step += 1
        self.at.tokens += ids.size * self.ranks.count
        return {**said, "norm": norm.item(), "rate": factor}

    def _gradients(self, ids: np.ndarray, weights: np.ndarray, depth: int) -> dict[str, float]:
        whole = self.ranks.summed(float(weights.astype(np.float32)[:, 1:].sum())) or 1.0
        rows = max(1, self.o.micro_tokens // ids.shape[1])
        sums: dict[str, Tensor] = {}
        for lo in range(0, len(ids), rows):
            i = torch.from_numpy(ids[lo : lo + rows].astype(np.int64)).to(self.device)
            w = torch.from_numpy(weights[lo : lo + rows].astype(np.float32)).to(self.device)
            bf16 = self.device.type == "cuda"
            with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
                loss, parts = losses(self.body, i, w, depth)
            (loss / whole).backward()
            for name, value in parts.items():
                sums[name] = sums.get(name, torch.zeros_like(value)) + value
        got = {name: value.item() for name, value in sums.items()}
        pairs = {"dialogue": "dialogues", "text": "texts", "mtp": "drafts", "agree": "drafts"}
        told = {n: got[n] / got[c] for n, c in pairs.items() if got.get(c)}
        if got.get("deep"):
            told["mtp3"] = got["mtp3"] / got["deep"]
        return told

    def _tell(self, window: list[dict[str, float]], shape: tuple[int, ...]) -> None:
        if self.ranks.rank:
            return
        names = sorted({name for one in window for name in one})
        means = {n: np.mean([one[n] for one in window if n in one]) for n in names}
        speed = self.at.tokens / max(1e-9, self.seconds)
        text = " ".join(f"{name} {value:.4f}" for name, value in means.items())
        memory = torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else 0
        print(
            f"step {self.at.step} f {self.fraction:.3f} {self.at.tokens / 1e6:.2f} M tokens "
            f"{speed:.0f}/s rows {shape} {memory:.0f} GiB | {text}",
            flush=True,
        )

    def _save(self) -> None:
        if self.ranks.rank:
            return
        self.o.out.mkdir(parents=True, exist_ok=True)
        state: dict[str, Any] = {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state(),
            "config": self.config,
            **attrs.asdict(attrs.evolve(self.at, seconds=self.seconds)),
        }
        net = {n: p.bfloat16() if p.dim() > 1 else p for n, p in state["net"].items()}
        light = {**state, "net": net}
        del light["optimizer"]
        for file, kept in ((self.file, state), (self.light, light)):
            part = file.with_suffix(".part")
            torch.save(kept, part)
            part.replace(file)

    def _load(self, file: Path) -> None:
        state = torch.load(file, map_location=self.device, weights_only=True)
        self.net.load_state_dict(state["net"])
        self.at = Progress(**{name: state[name] for name in attrs.fields_dict(Progress)})
        if "optimizer" in state:
            self.optimizer.load(state["optimizer"])
        else:
            self.at.empty_at = self.at.step
        print(f"resumed {file} at step {self.at.step}, {self.at.seconds:.0f} s", flush=True)


def losses(
    body: Body, ids: Tensor, weights: Tensor, depth: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """The weighted sum over the rows, and sums of what is to be told."""
    hidden, drafts = body(ids, depth)
    net = body.net
    said = weights[:, 1:] > 0
    own = weights[:, 1:] > OWN  # what the model may be asked to say: only that is drafted
    w = weights[:, 1:][said]
    logits = net.head(hidden[:, :-1][said])
    each = functional.cross_entropy(logits, ids[:, 1:][said], reduction="none")
    talk = w >= 1
    loss = (each * w).sum()
    parts = {
        "dialogue": each[talk].detach().sum(), "dialogues": talk.sum(),
        "text": each[~talk].detach().sum(), "texts": (~talk).sum(),
    }  # fmt: skip
    best = torch.full_like(ids, -1)  # by position, what the trunk says comes there
    with torch.no_grad():
        best[:, 1:][said] = logits.argmax(-1)
    for d, drafted in enumerate(drafts, 1):
        # Drafts begin behind a token that the model has said itself.
        at = own[:, d:] & own[:, :-d]
        rows = net.head(drafted[:, : -1 - d][at])
        targets, w = ids[:, 1 + d :][at], weights[:, 1 + d :][at]
        each = functional.cross_entropy(rows, targets, reduction="none")
        loss = loss + MTP_WEIGHT / d * (each * w).sum()
        if d == 1:
            same = (rows.argmax(-1) == best[:, 2:][at]) & (w >= 1)
            parts["mtp"] = each.detach()[w >= 1].sum()
            parts["agree"], parts["drafts"] = same.sum(), (w >= 1).sum()
        if d == 3:
            parts["mtp3"], parts["deep"] = each.detach()[w >= 1].sum(), (w >= 1).sum()
    return loss, parts


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", default="demo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=9.0, help="of this run")
    parser.add_argument("--total-minutes", type=float, default=18.0, help="of the whole schedule")
    parser.add_argument("--total-steps", type=int, default=0, help="by steps, not by the clock")
    parser.add_argument("--stop-at", type=int, default=0, help="pause after this step")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--batch-tokens", type=int, default=65536)
    parser.add_argument(
        "--micro-tokens",
        type=int,
        default=65536,
        help="through one GPU together: less takes less memory",
    )
    parser.add_argument("--longest", type=int, default=16384)
    parser.add_argument("--tell", type=float, default=10.0, help="seconds between lines")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    Trainer(parse()).run()
