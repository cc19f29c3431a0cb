"""`flashrt bench`: which measurement, with which flags. Knows no torch: --help must not wait."""

import argparse
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from flashrt.bench.engine.options import NUMBER_FORMATS, SOURCES, Options
from flashrt.demo import DEMO_PATH
from flashrt.engine.shapes import SHAPES

DESCRIPTION = (
    "Measure the engine on this machine: on a checkpoint, or on random weights of a named shape. "
    "Beside each time stands its bound: what the bytes that must be read, or the operations that "
    "must be done, take at the rates that this machine reaches, measured in the same run."
)
ROWS_MAX = 64
TOKENS_MAX = 1 << 20
CHUNK = 64


@attrs.frozen
class Measurement:
    """A subcommand: its help, and what it measures if nothing else is said."""

    text: str
    context: tuple[int, ...]
    context_text: str
    repeat: int
    repeat_text: str
    default: Mapping[str, str] = {"shape": "27b"}
    """The model or shape if none is named."""


MEASUREMENTS: Mapping[str, Measurement] = {
    "decode": Measurement(
        "time per token: without drafts, verifying more rows, and with drafts by the MTP layer",
        (512, 32768),
        "tokens before what is decoded",
        64,
        "steps that are counted",
    ),
    "prefill": Measurement(
        "time to the first token: of cold prompts, and of more tokens behind a state that is there",
        (512, 4096, 16384, 32768),
        "tokens of cold prompts",
        3,
        "prompts of each length",
    ),
    "restore": Measurement(
        "bringing a saved state back, from the device and from the host, and saving one",
        (4096, 32768),
        "tokens of the state",
        20,
        "times at each length",
    ),
    "parking": Measurement(
        "time per token while a saved state is copied to the host, against without",
        (32768,),
        "tokens of the state, and before what is decoded",
        64,
        "steps that are counted",
    ),
    "turn": Measurement(
        "a warm turn of an agent over HTTP, from a tool result sent to the next tool call complete",
        (4096,),
        "tokens of the conversation's beginning, about",
        5,
        "turns that are counted",
        default={"model": str(DEMO_PATH)},
    ),
    "peers": Measurement(
        "the same prompts by this engine, by transformers, and by vLLM where it is installed",
        (512, 4096),
        "tokens of cold prompts",
        2,
        "prompts of each length",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that can be typed behind `flashrt bench`."""
    kinds = parser.add_subparsers(dest="measurement", required=True, metavar="MEASUREMENT")
    for name, measurement in MEASUREMENTS.items():
        text = measurement.text
        kind = kinds.add_parser(name, help=text, description=f"Measure {text}.", allow_abbrev=False)
        _add_subject(kind, " or ".join(measurement.default.values()))
        _add_amounts(kind, measurement)
        if more := MORE.get(name):
            more(kind)


def run(asked: Mapping[str, Any]) -> int:
    """Measure and print; the exit status. Raises CannotServe."""
    wishes = dict(asked)
    name = wishes.pop("measurement")
    options = Options.load(wishes, MEASUREMENTS[name].default)
    # torch takes seconds to import; a wrong flag or --help must not wait for it.
    return importlib.import_module("flashrt.bench.engine.run").run(name, options)


def _add_subject(parser: argparse.ArgumentParser, default: str) -> None:
    add, named = parser.add_argument, "the bundled demo" if default == str(DEMO_PATH) else default
    add("--model", metavar="MODEL", help="a checkpoint: a directory, or a cached repository id")
    add(
        "--shape",
        choices=SHAPES,
        help=f"random weights of this shape instead [default without --model: {named}]",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where it runs")
    add("--dtype", choices=("auto", "float32", "bfloat16"), default="auto", help="of the weights")
    add("--seed", type=_count(0, 2**31), default=0, metavar="N", help="of weights and prompts")
    add("--json", type=Path, metavar="FILE", help="write the figures and the machine's facts there")


def _add_amounts(parser: argparse.ArgumentParser, measurement: Measurement) -> None:
    add, tokens = parser.add_argument, _count(1, TOKENS_MAX)
    _add_list(parser, "--context", measurement.context, tokens, measurement.context_text)
    add(
        "--repeat",
        type=_count(1, 100_000),
        default=measurement.repeat,
        metavar="N",
        help=f"{measurement.repeat_text} [default %(default)s]",
    )
    add(
        "--chunk-tokens",
        type=_chunk,
        default=0,
        metavar="N",
        help="tokens of a prompt that are read at a time, as the server's setting of this name; a "
        "multiple of 64 [default 1024, on a GPU 2048]",
    )


def _add_decode(parser: argparse.ArgumentParser) -> None:
    rows = _count(1, ROWS_MAX)
    _add_list(parser, "--rows", (1, 4, 8), rows, "rows that a step verifies, 1 to 64")
    _add_format(parser)
    _add_kv_cache(parser)


def _add_prefill(parser: argparse.ArgumentParser) -> None:
    tokens = _count(1, TOKENS_MAX)
    contexts = (4096, 16384, 32768)
    _add_list(parser, "--append", contexts, tokens, "tokens that are there before more are read")
    _add_tail(parser, "how many more")
    parser.add_argument(
        "--offsets",
        type=_count(1, CHUNK),
        default=CHUNK,
        metavar="N",
        help="positions modulo 64 at which this is tried [default %(default)s]",
    )
    _add_format(parser)
    _add_kv_cache(parser)


def _add_kv_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kv-cache-dtype",
        choices=("auto", "bf16", "fp8"),
        default="auto",
        help="of the keys and values in the state, as the server's setting of this name",
    )


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        dest="number_format",
        choices=NUMBER_FORMATS,
        help="quantize the random weights' layers; embedding, head and MTP layer stay plain",
    )


def _add_restore(parser: argparse.ArgumentParser) -> None:
    _add_tail(parser, "how many more tokens are read behind a state that is brought back")
    shown = " ".join(SOURCES)
    parser.add_argument(
        "--from",
        dest="sources",
        nargs="+",
        choices=SOURCES,
        default=SOURCES,
        help=f"where the state lies [default {shown}]",
    )
    _add_kv_cache(parser)


def _add_turn(parser: argparse.ArgumentParser) -> None:
    _add_tail(parser, "tokens of a tool result, about")


def _add_tail(parser: argparse.ArgumentParser, text: str) -> None:
    tokens = _count(1, TOKENS_MAX)
    text = f"{text} [default %(default)s]"
    parser.add_argument("--tail", type=tokens, default=100, metavar="N", help=text)


MORE: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "decode": _add_decode,
    "prefill": _add_prefill,
    "restore": _add_restore,
    "turn": _add_turn,
}
"""Flags of one measurement alone."""


def _add_list(
    parser: argparse.ArgumentParser,
    flag: str,
    default: tuple[int, ...],
    of: Callable[[str], int],
    text: str,
) -> None:
    shown = " ".join(map(str, default))
    parser.add_argument(
        flag, type=of, nargs="+", default=default, metavar="N", help=f"{text} [default {shown}]"
    )


def _count(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and least <= int(text[:20]) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most}")

    return read


def _chunk(text: str) -> int:
    tokens = _count(CHUNK, TOKENS_MAX)(text)
    if tokens % CHUNK:
        raise argparse.ArgumentTypeError(f"{text!r} is no multiple of {CHUNK}")
    return tokens
