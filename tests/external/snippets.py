"""docs/clients.md as data: what it tells a reader to write and to run, client by client."""

import re
from pathlib import Path

import attrs

from tests.source import ROOT

PAGE = ROOT / "docs" / "clients.md"
URL = "http://127.0.0.1:8000"
WINDOW_TOKENS = 131_072
COMPACT_TOKENS = 110_000
"""Five sixths of it, at which a client is to compact."""

TASK = "What does README.md say?"
HOW_TO_TRY = "To try it"
"""The one section that is about no client."""

FENCE = re.compile(
    r"(?:^`(?P<path>[^`\n]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


@attrs.frozen
class Block:
    """A file to write, if it has a path, or else something to run."""

    language: str
    path: str | None
    text: str

    def filled(self, url: str, window_tokens: int, task: str) -> "Block":
        """With what a reader replaces."""
        text = self.text.replace(URL, url).replace(str(WINDOW_TOKENS), str(window_tokens))
        text = text.replace(str(COMPACT_TOKENS), str(window_tokens * 5 // 6))
        return attrs.evolve(self, text=text.replace(TASK, task))


@attrs.frozen
class Section:
    """What the page has for one client over one protocol."""

    title: str
    prose: str
    blocks: tuple[Block, ...]

    @property
    def files(self) -> list[Block]:
        """What is written before."""
        return [block for block in self.blocks if block.path is not None]

    @property
    def run(self) -> Block:
        """What is run."""
        (block,) = [block for block in self.blocks if block.path is None]
        return block

    @property
    def program(self) -> str:
        """The program of the last command; for a script the package that it is about."""
        if self.run.language == "sh":
            lines = self.run.text.replace("\\\n", " ").strip().splitlines()
            return lines[-1].split()[0]
        found = re.search(r"^(?:from|import) (?:[\w{}* ]+ from ')?([@\w/-]+)", self.run.text, re.M)
        assert found is not None, self.title
        return found[1]

    def filled(self, url: str, window_tokens: int = WINDOW_TOKENS, task: str = TASK) -> "Section":
        """With a real address and window, and another task."""
        blocks = (block.filled(url, window_tokens, task) for block in self.blocks)
        return attrs.evolve(self, blocks=tuple(blocks))

    def write(self, home: Path, project: Path) -> None:
        """The files, `~` being `home` and everything else in `project`."""
        for block in self.files:
            assert block.path is not None
            file = home / block.path[2:] if block.path.startswith("~/") else project / block.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)


def read_sections(page: str) -> dict[str, Section]:
    """Every section of the page that has blocks, by its title."""
    found = {}
    for part in re.split(r"^##+ ", page, flags=re.M)[1:]:
        title, _, body = part.partition("\n")
        blocks = tuple(
            Block(match["language"], match["path"], match["text"]) for match in FENCE.finditer(body)
        )
        if blocks:
            found[title] = Section(title, FENCE.sub("", body).strip(), blocks)
    return found


SECTIONS = read_sections(PAGE.read_text())
CLIENTS = {title: one for title, one in SECTIONS.items() if title != HOW_TO_TRY}
