"""From trained weights to the folder that the server loads: `… training.pack RUN OUT`.

Of several runs, one going on from another, `… training.pack RUN RUN OUT` takes the mean.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from flashrt.demo import DEMO_PATH
from flashrt.demo.make import write_small_files

TOTAL_MAX = 40_000_000
FLOAT32 = ("A_log", "dt_bias", "linear_attn.norm.weight")
"""What the family keeps in float32."""


def pack(weights: dict[str, Tensor], config: dict[str, Any], tokenizer: Path, out: Path) -> int:
    """Write the whole checkpoint; its bytes. Refuses what is too large for the repository."""
    write_small_files(out, config, Tokenizer.from_file(str(tokenizer)))
    tensors = {name: _kept(name, tensor) for name, tensor in weights.items()}
    part = out / "model.safetensors.part"
    save_file(tensors, part, metadata={"format": "pt"})
    part.replace(out / "model.safetensors")
    size = sum(file.stat().st_size for file in out.iterdir())
    if size > TOTAL_MAX:
        raise SystemExit(f"{out} has {size} bytes; {TOTAL_MAX} are allowed: train a smaller shape")
    return size


def _kept(name: str, tensor: Tensor) -> Tensor:
    """As it goes into the file."""
    dtype = torch.float32 if name.endswith(FLOAT32) else torch.bfloat16
    return tensor.detach().cpu().to(dtype).contiguous()


def mean(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Of weights by name, in float32."""
    return {n: torch.stack([one[n].float() for one in states]).mean(0) for n in states[0]}


def _state(run: Path) -> dict[str, Any]:
    kept = [file for name in ("state.pt", "light.pt") if (file := run / name).exists()]
    return torch.load(kept[0], map_location="cpu", weights_only=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="+", help="a folder of flashrt.demo.training.train")
    parser.add_argument("out", type=Path, help="the checkpoint folder to write")
    options = parser.parse_args(arguments)
    states = [_state(run) for run in options.run]
    weights = mean([state["net"] for state in states])
    size = pack(weights, states[0]["config"], DEMO_PATH / "tokenizer.json", options.out)
    print(f"{options.out}: {size} bytes after {', '.join(str(s['step']) for s in states)} steps")


if __name__ == "__main__":
    main()
