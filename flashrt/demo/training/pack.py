"""From trained weights to the folder that the server loads: `… training.pack RUN OUT`."""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flashrt.demo import DEMO_PATH
from flashrt.demo.make import generation_config, tokenizer_config
from flashrt.demo.template import CHAT_TEMPLATE
from flashrt.demo.weights import Made, safetensors_bytes

TOTAL_MAX = 40_000_000
FLOAT32 = ("A_log", "dt_bias", "linear_attn.norm.weight")
"""What the family keeps in float32."""


def made(name: str, tensor: Tensor) -> Made:
    """As it goes into the file."""
    tensor = tensor.detach().cpu().contiguous()
    if name.endswith(FLOAT32):
        return Made("F32", tuple(tensor.shape), tensor.float().numpy().tobytes())
    bits = tensor.bfloat16().view(torch.int16).numpy()
    return Made("BF16", tuple(tensor.shape), bits.tobytes())


def pack(weights: dict[str, Tensor], config: dict[str, Any], tokenizer: Path, out: Path) -> int:
    """Write the whole checkpoint; its bytes. Refuses what is too large for the repository."""
    out.mkdir(parents=True, exist_ok=True)
    description = json.loads(tokenizer.read_text(encoding="utf-8"))
    ids = {token["content"]: token["id"] for token in description["added_tokens"]}
    texts = {
        "config.json": json.dumps(config, indent=2) + "\n",
        "generation_config.json": json.dumps(
            # Greedy by default: a model of this size copies exactly or not at all.
            generation_config(ids["<|im_end|>"], ids["<|endoftext|>"]) | {"do_sample": False},
            indent=2,
        ) + "\n",
        "tokenizer_config.json": json.dumps(tokenizer_config(), indent=2) + "\n",
        "chat_template.jinja": CHAT_TEMPLATE,
    }  # fmt: skip
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    if tokenizer.resolve() != (out / "tokenizer.json").resolve():
        shutil.copyfile(tokenizer, out / "tokenizer.json")
    tensors = {name: made(name, tensor) for name, tensor in weights.items()}
    part = out / "model.safetensors.part"
    part.write_bytes(safetensors_bytes(tensors))
    part.replace(out / "model.safetensors")
    size = sum(file.stat().st_size for file in out.iterdir())
    if size > TOTAL_MAX:
        raise SystemExit(f"{out} has {size} bytes; {TOTAL_MAX} are allowed: train a smaller shape")
    return size


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a folder of flashrt.demo.training.train")
    parser.add_argument("out", type=Path, help="the checkpoint folder to write")
    options = parser.parse_args()
    kept = [file for name in ("state.pt", "light.pt") if (file := options.run / name).exists()]
    state = torch.load(kept[0], map_location="cpu", weights_only=True)
    tokenizer = DEMO_PATH / "tokenizer.json"
    size = pack(state["net"], state["config"], tokenizer, options.out)
    print(f"{options.out}: {size} bytes after {state['step']} steps")


if __name__ == "__main__":
    main()
