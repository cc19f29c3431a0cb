"""Runs a section of docs/clients.md in an empty home, or says what of it is missing here.

FLASHRT_TEST_CLIENTS names the folders of programs, as PATH does, and FLASHRT_TEST_NODE_MODULES the
folder of Node's packages. Python packages may be those of this Python, or of one in such a folder.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import trio

from tests.external.snippets import Section

FOLDERS = os.environ.get("FLASHRT_TEST_CLIENTS", "")
NODE_FOLDER = os.environ.get("FLASHRT_TEST_NODE_MODULES", "")
README = "# A tiny repo used for a test\n"
IN_CI = (
    *("codex", "claude", "opencode", "qwen", "pi", "cline"),
    *("openai", "anthropic", "@anthropic-ai/sdk"),
)
"""What .ci/run installs; there it must be found."""


@attrs.frozen
class Ran:
    """How a run of a client ended."""

    status: int
    printed: str


@attrs.frozen
class Place:
    """A home and a project of their own, in a folder that is empty at first."""

    folder: Path

    @property
    def home(self) -> Path:
        """The home folder of whoever runs the client."""
        return self.folder / "home"

    @property
    def project(self) -> Path:
        """The repository that it works in."""
        return self.folder / "project"

    def environment(self) -> dict[str, str]:
        """Nothing of the tester's own settings."""
        return {
            "HOME": str(self.home),
            "PATH": f"{FOLDERS}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
            # Some clients would clone skills first; so git fetches nothing from elsewhere.
            "GIT_ALLOW_PROTOCOL": "file",
        }

    def prepare(self, section: Section) -> None:
        """The repository, and the files that the section names. Skips what is not installed."""
        for one in (self.home, self.project):
            one.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q"], cwd=self.project, check=True)
        (self.project / "README.md").write_text(README)
        section.write(self.home, self.project)

    async def run(self, section: Section) -> Ran:
        """Do as the section says. It ends by itself, or with the caller's time."""
        self.prepare(section)
        done = await trio.run_process(
            command_of(section, self.project),
            cwd=self.project,
            env=self.environment(),
            stdin=b"",
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(errors="replace"))


def command_of(section: Section, project: Path) -> list[str]:
    """What runs the section's last block; a skip where something is missing, in CI a failure."""
    name, text = section.program, section.run.text
    match section.run.language:
        case "sh":
            if shutil.which(name, path=FOLDERS):
                return ["bash", "-euc", text]
        case "python":
            for python in filter(None, (sys.executable, *pythons())):
                if has_package(python, name):
                    return [python, "-c", text]
        case "js":
            modules = Path(NODE_FOLDER) / "node_modules"
            if NODE_FOLDER and (modules / name).is_dir():
                (project / "node_modules").symlink_to(modules)
                (project / "snippet.mjs").write_text(text)
                return ["node", "snippet.mjs"]
    if name in IN_CI and os.environ.get("CI"):
        pytest.fail(f"CI must install it first: {name}")
    pytest.skip(f"missing here: {name}, in FLASHRT_TEST_CLIENTS or FLASHRT_TEST_NODE_MODULES")


def pythons() -> list[str | None]:
    """Those of the folders."""
    return [shutil.which("python", path=folder) for folder in FOLDERS.split(":") if folder]


def has_package(python: str, name: str) -> bool:
    """Whether it could import it."""
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is None)"
    return subprocess.run([python, "-Ic", code], check=False).returncode == 0
