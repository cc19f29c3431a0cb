"""Times of the device kernels on a model of a named shape with random weights.

Prints a table with the bound beside each figure: the least that the bytes to be read would take at
the bandwidth that a kernel reaches which only reads, measured on the same device just before.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flashrt.bench.engine.options import NUMBER_FORMATS
from flashrt.engine.config import ModelConfig


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m flashrt.bench.kernels",
        description="Time the device kernels on random weights of a named shape, one GPU. "
        "Takes about a minute and, for 27b, 60 GB of device memory (35b-a3b: 75).",
    )
    parser.add_argument("--shape", default="27b", choices=("27b", "35b-a3b", "tiny", "tiny-moe"))
    parser.add_argument("--format", dest="number_format", choices=NUMBER_FORMATS,
                        help="form of the matrices, as releases have it; the head stays bfloat16 "
                        "(default: all bfloat16)")  # fmt: skip
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8], metavar="N",
                        help="rows of a step, 1 to 64 (default: 1 4 8)")  # fmt: skip
    parser.add_argument("--context", type=int, nargs="+", default=[512, 32768], metavar="N",
                        help="tokens behind a step (default: 512 32768)")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 2 where there is no device."""
    options = parser().parse_args(arguments)
    if not all(0 < rows <= 64 for rows in options.rows) or min(options.context) < 1:
        print("--rows takes 1 to 64, --context at least 1", file=sys.stderr)
        return 2
    try:
        from flashrt.engine.kernels.trial import report
    except ImportError as error:
        print(f"the kernels need Triton (pip install 'flashrt[gpu]'): {error}", file=sys.stderr)
        return 2
    weights_of = partial(_packed, options.number_format) if options.number_format else None
    figures = report(options.shape, options.rows, options.context, weights_of)
    if figures is None:
        print("no CUDA device here: these kernels run on an NVIDIA GPU only", file=sys.stderr)
        return 2
    if options.json:
        figures["format"] = options.number_format
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def _packed(number_format: str, config: ModelConfig, device: Any, dtype: Any) -> Any:
    """Random weights; `dtype`: of what stays plain."""
    from flashrt.bench.engine.random_weights import random_model

    return random_model(config, device, dtype, number_format=number_format).weights


if __name__ == "__main__":
    sys.exit(main())
