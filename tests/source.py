"""The repository as text: its files, and the imports and functions of its modules."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[1]
PACKAGE = "flashrt"


@attrs.frozen
class Module:
    """One Python file of the repository."""

    path: Path

    @property
    def name(self) -> str:
        """Dotted; a package by its own name."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text()

    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of everything imported, anywhere in the file."""
        for node in ast.walk(_parsed(self.path)):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)

    def functions(self) -> Iterator[tuple[str, int]]:
        """(name, lines) of every function and method."""
        for node in ast.walk(_parsed(self.path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, (node.end_lineno or 0) - node.lineno + 1

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))


def modules(folder: str) -> list[Module]:
    """Every Python file below a folder of the repository, by path."""
    return [Module(path) for path in sorted((ROOT / folder).rglob("*.py"))]


def files() -> list[Path]:
    """Every file that is, or would be, under version control; else every file but hidden ones."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        return sorted(ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file())
    return sorted(
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not is_hidden(path) and "__pycache__" not in path.parts
    )


def is_hidden(path: Path) -> bool:
    """Whether the file or a folder above it is hidden; the folder of the CI script is not."""
    parts = path.relative_to(ROOT).parts
    return any(part.startswith(".") and part != ".ci" for part in parts)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))
