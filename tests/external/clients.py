"""Coding clients that compact, each set up as docs/clients.md says, with a window of its own."""

from pathlib import Path

import attrs

from tests.external.runner import Place
from tests.external.snippets import CLIENTS as SECTIONS

PROMPT_TOKENS_MAX = 40_000


@attrs.frozen
class Client:
    """A client, and what it does when it is refused."""

    title: str
    """Of its section in docs/clients.md."""
    prompt_tokens_max: int = PROMPT_TOKENS_MAX
    """A limit that it passes after some chapters, and a compacted conversation does not."""
    summarises: bool = True
    """Whether it asks the model for a summary; others drop what is old."""

    @property
    def name(self) -> str:
        """Its title, as a test can be called."""
        return self.title.lower().replace(" ", "-")

    async def run(self, folder: Path, url: str, window_tokens: int, task: str) -> str:
        """Give it the task; what it prints. `window_tokens`: how large it believes it to be."""
        section = SECTIONS[self.title].filled(url, window_tokens, task)
        return (await Place(folder).run(section)).printed


KNOWN = (
    Client("Claude Code"),
    Client("pi"),
    Client("pi over Responses"),
    Client("OpenCode"),
    Client("OpenCode over Responses"),
    Client("Qwen Code"),
    # It keeps about 8,000 bytes of a command's output.
    Client("Cline", prompt_tokens_max=22_000, summarises=False),
    Client("OpenHands"),
    Client("gptme", summarises=False),
)
CLIENTS = {client.name: client for client in KNOWN}

CODEX = Client("Codex")
"""It gives up when it is refused, and compacts by its own count before."""
