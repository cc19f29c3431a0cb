"""`flashrt inspect`, as it is typed. Knows no torch until it runs: --help must not wait."""

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from flashrt.demo import DEMO_PATH

if TYPE_CHECKING:
    from flashrt.engine.placement import Placement

DESCRIPTION = (
    "Say what a checkpoint holds (architecture, number formats, MTP layer, tokenizer, chat "
    "template) and how much memory it will need, from its headers: nothing is loaded, and a "
    "checkpoint that would be refused is refused here in the same words."
)
EPILOG = "Exit status: 0, or 2 with one line that says why the checkpoint cannot be served."

TOKENS_MAX = 1 << 24
MEMORY_GB_MAX = 100_000.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that can be typed behind `flashrt inspect`."""
    parser.epilog = EPILOG
    parser.add_argument(
        "model",
        nargs="?",
        default=str(DEMO_PATH),
        metavar="MODEL",
        help="a Hugging Face directory, or a repository id that is in the local cache; without "
        "one, the bundled checkpoint",
    )
    parser.add_argument(
        "--max-seq",
        type=_tokens,
        nargs="+",
        default=[],
        metavar="N",
        help="windows to count memory for, in tokens [default 32768, 131072 and the model's own]",
    )
    parser.add_argument(
        "--memory-gb",
        type=_gigabytes,
        metavar="N",
        help="count for a GPU with so much memory (10^9 bytes) instead of what is free here now",
    )
    parser.add_argument(
        "--device",
        default="auto",
        choices=("auto", "cpu", "cuda"),
        help="where it would run [default auto: a GPU where there is one]",
    )
    parser.add_argument(
        "--dtype",
        default="auto",
        choices=("auto", "float32", "bfloat16"),
        help="of what is not quantized [default auto: bfloat16, on a CPU float32]",
    )
    parser.add_argument(
        "--kv-cache-dtype",
        default="auto",
        choices=("auto", "bf16", "fp8"),
        help="of the keys and values in the state [default auto: the dtype]",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")


def run(asked: Mapping[str, Any]) -> int:
    """Look and tell; 0. Raises CannotServe."""
    # torch takes seconds to import; a wrong flag or --help must not wait for it.
    from flashrt.engine.assets import find_model
    from flashrt.engine.checkpoint import check_against_plan, opened
    from flashrt.engine.tensor_plan import allocate_all
    from flashrt.inspect.contents import Contents
    from flashrt.inspect.needs import demand
    from flashrt.inspect.report import lines

    folder = find_model(asked["model"])
    place, available = _where(asked)
    checkpoint = opened(folder)
    plan = allocate_all(checkpoint.config, "meta", place.dtype, checkpoint.layout)
    check_against_plan(checkpoint, plan)
    contents = Contents.of(folder, checkpoint, plan)
    needed = demand(checkpoint, place, available, asked["max_seq"])
    if asked["json"]:
        told = {
            **attrs.asdict(contents),
            "size_bytes": contents.size_bytes,
            "memory": attrs.asdict(needed),
        }
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n")
    else:
        print(*lines(contents, needed), sep="\n")
    return 0


def _where(asked: Mapping[str, Any]) -> tuple["Placement", int]:
    """A device and its memory: of this machine, or one that is only thought of."""
    from flashrt.engine.placement import Placement, free_bytes

    words = (asked["device"], asked["dtype"], asked["kv_cache_dtype"])
    if asked["memory_gb"] is None:
        place = Placement.of(*words)
        return place, free_bytes(str(place.device))
    return Placement.supposed(*words), round(asked["memory_gb"] * 1e9)


def _tokens(text: str) -> int:
    if text.isdecimal() and len(text) < 10 and 1 < int(text) <= TOKENS_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 2 to {TOKENS_MAX}")


def _gigabytes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0 < value <= MEMORY_GB_MAX:
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is no number of GB up to {MEMORY_GB_MAX:.0f}")
