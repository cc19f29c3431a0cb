"""What `flashrt bench` is asked to measure. Knows no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from flashrt.demo import DEMO_PATH
from flashrt.errors import CannotServe

NUMBER_FORMATS = ("fp8", "int4", "nvfp4")
"""Forms that random weights may be in: 128 x 128 blocks, groups of 128, and groups of 16."""

DEVICE, HOST = SOURCES = ("device", "host")
"""Where a saved state may lie that is brought back."""


@attrs.frozen
class Options:
    """One command's wishes. Contexts and rows are those of the table's lines."""

    model: str | None
    """A checkpoint folder or cached repository id; None: random weights of `shape`."""
    shape: str | None
    """None with a `model`."""
    device: str
    dtype: str
    context: tuple[int, ...]
    repeat: int
    chunk_tokens: int
    seed: int
    json: Path | None = None
    rows: tuple[int, ...] = ()
    append: tuple[int, ...] = ()
    """Contexts behind which `tail` more tokens are read."""
    tail: int = 100
    offsets: int = 1
    """How many positions modulo 64 an append is tried at."""
    number_format: str | None = None
    """Of random weights; None: the dtype."""
    kv_cache_dtype: str = "auto"
    """As the server's setting of this name."""
    sources: tuple[str, ...] = SOURCES

    @classmethod
    def load(cls, asked: Mapping[str, Any], default: Mapping[str, str]) -> "Options":
        """From the parser's values; `default`: the model or shape if none was named.

        Raises CannotServe where they do not go together.
        """
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in asked.items()
        }
        if values["model"] is not None and values["shape"] is not None:
            raise CannotServe("--model and --shape contradict each other: give up one of them")
        if values["model"] is None and values["shape"] is None:
            values |= default
        if values.get("number_format") and values["model"] is not None:
            raise CannotServe("--format is of random weights; a --model has its own")
        options = cls(**values)
        if options.json is not None:
            _check_writable(options.json)
        return options

    @property
    def name(self) -> str:
        """Of what is measured."""
        if self.model is None:
            form = f" in {self.number_format}" if self.number_format else ""
            return f"{self.shape} with random weights{form}{self._kept}"
        return ("the bundled demo" if self.model == str(DEMO_PATH) else self.model) + self._kept

    @property
    def _kept(self) -> str:
        kept = self.kv_cache_dtype
        return "" if kept == "auto" else f", keys and values in {kept}"


def _check_writable(file: Path) -> None:
    """Before minutes of measuring, not behind them."""
    try:
        file.open("a").close()
    except OSError as error:
        raise CannotServe(f"--json: cannot write {file}: {error.strerror}") from None
