"""One planted fault, as data."""

from pathlib import Path

import attrs


@attrs.frozen
class Fault:
    """Where it goes, what it replaces, who must notice, and what it would break.

    `old` is the text as it stands, exactly, found once in the file; `tests` is what must fail, as
    pytest takes it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str

    def matches(self, root: Path) -> int:
        """How often its text stands in the file, which must be once."""
        file = root / self.file
        return file.read_text().count(self.old) if file.exists() else 0

    def planted_in(self, text: str) -> str:
        """The file's text with the fault in it."""
        assert text.count(self.old) == 1, f"{self.name}: {self.old!r} is not unique in {self.file}"
        return text.replace(self.old, self.new)
