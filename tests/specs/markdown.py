"""Reads the executable specifications out of the Markdown in `specs/`. See specs/README.md."""

import importlib
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from flashrt.fsm.table import Machine, Table

FOLDER = Path(__file__).parents[2] / "specs"
MARK = re.compile(r"^<!-- (?P<kind>[a-z]+): (?P<module>[\w.]+):(?P<name>\w+) -->$")
KINDS = ("table", "decision", "moves", "stamps", "fields", "seam")
TERMINAL = "Terminal: "


class BadSpec(ValueError):
    """A specification that cannot be read; the message names the file and the line."""


@attrs.frozen
class Block:
    """One marked Markdown table: where it stands, what it is about, its header and cells."""

    file: str
    line: int
    kind: str
    module: str
    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    terminal: tuple[str, ...] | None

    @property
    def address(self) -> str:
        """`module:NAME`, as the marker has it."""
        return f"{self.module}:{self.name}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The first column."""
        return tuple(row[0] for row in self.rows)

    def target(self) -> Any:
        """What the marker names, imported."""
        return getattr(importlib.import_module(self.module), self.name)

    def __str__(self) -> str:
        return self.address


@attrs.frozen
class Row:
    """One row of a transition table, as written."""

    label: str
    state: str
    event: str
    next: str

    def __str__(self) -> str:
        return f"{self.label} {self.state} --{self.event}--> {self.next}"


@attrs.frozen
class TableSpec:
    """A transition table, as written, beside the one in the code."""

    block: Block
    rows: tuple[Row, ...]
    table: Table[Enum, Enum]

    @classmethod
    def from_block(cls, block: Block) -> "TableSpec":
        """Check the columns and find the table."""
        expect_columns(block, ("row", "state", "event", "next", "because"))
        if block.terminal is None:
            raise BadSpec(f"{block.file}:{block.line}: no line '{TERMINAL}…' after the table")
        return cls(block, tuple(Row(*cells[:4]) for cells in block.rows), block.target())

    def state(self, name: str) -> Enum:
        """The state of that name in the code."""
        return type(self.table.initial)[name]

    def event(self, name: str) -> Enum:
        """The event of that name in the code."""
        return type(self.table.events[0])[name]

    def machine_in(self, state: Enum) -> Machine[Enum, Enum]:
        """A machine that stands in `state`."""
        return Machine(self.table, state)

    def __str__(self) -> str:
        return self.block.address


@attrs.frozen
class DecisionRow:
    """One row of a decision table: a fact is True, False, or None where it does not matter."""

    label: str
    facts: tuple[bool | None, ...]
    outcome: str

    def matches(self, situation: tuple[bool, ...]) -> bool:
        """Whether this row decides `situation`."""
        return all(want in (None, is_) for want, is_ in zip(self.facts, situation, strict=True))

    def __str__(self) -> str:
        return f"{self.label} {self.outcome}"


@attrs.frozen
class DecisionSpec:
    """A decision table, as written: the facts' names, and its rows."""

    block: Block
    facts: tuple[str, ...]
    rows: tuple[DecisionRow, ...]

    @classmethod
    def from_block(cls, block: Block) -> "DecisionSpec":
        """Read the columns between the label and the outcome as facts."""
        if len(block.header) < 4 or block.header[0] != "row" or block.header[-1] != "because":
            raise BadSpec(f"{block.file}:{block.line}: want row | facts… | outcome | because")
        return cls(block, block.header[1:-2], tuple(cls._row(block, cells) for cells in block.rows))

    @staticmethod
    def _row(block: Block, cells: tuple[str, ...]) -> DecisionRow:
        meaning = {"yes": True, "no": False, "-": None}
        if odd := [cell for cell in cells[1:-2] if cell not in meaning]:
            raise BadSpec(f"{block.file}: {cells[0]}: {odd[0]!r} is not yes, no or -")
        return DecisionRow(cells[0], tuple(meaning[cell] for cell in cells[1:-2]), cells[-2])

    def deciding(self, situation: tuple[bool, ...]) -> list[DecisionRow]:
        """The rows that match; exactly one in a table that is right."""
        return [row for row in self.rows if row.matches(situation)]

    def __str__(self) -> str:
        return self.block.address


def read_folder(folder: Path = FOLDER) -> list[Block]:
    """Every marked table of every Markdown file in the folder, by file name."""
    return [
        block for file in sorted(folder.glob("*.md")) for block in read_text(file.read_text(), file)
    ]


def read_text(text: str, file: Path = Path("?")) -> Iterator[Block]:
    """Every marked table of one Markdown text.

    A marker inside a fenced code block is an example and is passed over.
    """
    lines = text.splitlines()
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fenced = not fenced
        elif line.startswith("<!--") and not fenced:
            yield _read_block(lines, number, file.name)


def expect_columns(block: Block, columns: tuple[str, ...]) -> None:
    """Raise BadSpec unless the header is exactly `columns`."""
    if block.header != columns:
        raise BadSpec(f"{block.file}:{block.line}: columns {block.header}, want {columns}")


def _read_block(lines: list[str], number: int, file: str) -> Block:
    mark = MARK.match(lines[number - 1])
    if mark is None or mark["kind"] not in KINDS:
        raise BadSpec(f"{file}:{number}: not a marker: {lines[number - 1]} (kinds: {KINDS})")
    at = number
    while at < len(lines) and not lines[at].strip():
        at += 1
    grid = []
    while at < len(lines) and lines[at].startswith("|"):
        grid.append(tuple(cell.strip() for cell in lines[at].strip().strip("|").split("|")))
        at += 1
    if len(grid) < 3 or not all(re.fullmatch(r":?-+:?", cell) for cell in grid[1]):
        raise BadSpec(f"{file}:{number}: no table with rows follows the marker")
    for offset, cells in enumerate(grid):
        if len(cells) != len(grid[0]) or "" in cells:
            raise BadSpec(f"{file}:{at - len(grid) + offset + 1}: want {len(grid[0])} full cells")
    return Block(
        file, number, mark["kind"], mark["module"], mark["name"],
        header=grid[0], rows=tuple(grid[2:]), terminal=_terminal(lines[at:]),
    )  # fmt: skip


def _terminal(lines: list[str]) -> tuple[str, ...] | None:
    for line in lines:
        if line.startswith("<!--"):
            return None
        if line.startswith(TERMINAL):
            names = line.removeprefix(TERMINAL).strip().rstrip(".")
            return () if names == "none" else tuple(name.strip() for name in names.split(","))
    return None
