"""Coding clients that compact, each headless against a server of ours, in an empty home folder.

FLASHRT_TEST_CLIENTS names the folders of their programs, as PATH does.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import attrs
import trio

MODEL = "local-model"
KEY = "any"
FOLDERS = os.environ.get("FLASHRT_TEST_CLIENTS", "")


@attrs.frozen
class Place:
    """Where a client runs, whom it asks, and how large it believes the model's window to be."""

    folder: Path
    url: str
    window_tokens: int

    @property
    def home(self) -> Path:
        """Its home folder."""
        return self.folder / "home"

    @property
    def project(self) -> Path:
        """The repository that it works in."""
        return self.folder / "project"

    def write(self, path: str, settings: object) -> None:
        """A settings file below the home folder."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))


Commands = list[list[str]]
Environment = dict[str, str]


def pi(place: Place, task: str) -> tuple[Commands, Environment]:
    """Chat is one of its three protocols."""
    model = {"id": MODEL, "reasoning": True, "contextWindow": place.window_tokens}
    provider = {
        "baseUrl": f"{place.url}/v1",
        "api": "openai-completions",
        "apiKey": KEY,
        "models": [{**model, "maxTokens": 16_384}],
    }
    place.write(".pi/agent/models.json", {"providers": {"local": provider}})
    run = ["pi", "--provider", "local", "--model", MODEL, "-p", task]
    return [run], {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}


def opencode(place: Place, task: str) -> tuple[Commands, Environment]:
    """Its provider package is inside the program."""
    limit = {"context": place.window_tokens, "output": 16_384}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": KEY},
        "models": {MODEL: {"limit": limit, "tool_call": True, "reasoning": True}},
    }
    allowed = {"bash": "allow", "edit": "allow"}
    settings = {"provider": {"local": provider}, "permission": allowed, "autoupdate": False}
    place.write(".config/opencode/opencode.json", settings)
    names = ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD")
    run = ["opencode", "run", "-m", f"local/{MODEL}", task]
    return [run], {f"OPENCODE_DISABLE_{name}": "1" for name in names}


def qwen(place: Place, task: str) -> tuple[Commands, Environment]:
    """Needs Node 22."""
    window = {"generationConfig": {"contextWindowSize": place.window_tokens}}
    quiet = {"usageStatisticsEnabled": False}
    place.write(".qwen/settings.json", {"privacy": quiet, "model": window})
    run = ["qwen", "--auth-type", "openai", "--approval-mode", "yolo", "-p", task]
    named = {"OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": MODEL}
    return [run], named


def cline(place: Place, task: str) -> tuple[Commands, Environment]:
    """It takes any window for 128,000 tokens. Without `local` a daemon would outlive it."""
    choose = ["cline", "auth", "-p", "openai", "-k", KEY, "-m", MODEL, "-b", f"{place.url}/v1"]
    return [choose, ["cline", "-P", "openai", "-m", MODEL, task]], {
        "CLINE_SESSION_BACKEND_MODE": "local"
    }


def openhands(place: Place, task: str) -> tuple[Commands, Environment]:
    """It would clone its skills first; with `file` git fetches nothing from elsewhere."""
    run = ["openhands", "--headless", "--override-with-envs", "--exit-without-confirmation"]
    named = {"LLM_MODEL": f"openai/{MODEL}", "LLM_API_KEY": KEY, "LLM_BASE_URL": f"{place.url}/v1"}
    alone = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "GIT_ALLOW_PROTOCOL": "file"}
    return [[*run, "-t", task]], {**named, **alone}


def gptme(place: Place, task: str) -> tuple[Commands, Environment]:
    """With 0 it guesses tokens instead of fetching a vocabulary."""
    run = ["gptme", "-m", f"local/{MODEL}", "--tool-format", "tool", "--non-interactive"]
    named = {"OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": KEY}
    return [[*run, task]], {**named, "GPTME_TIKTOKEN_TIMEOUT": "0"}


@attrs.frozen
class Client:
    """A client, and what it does when it is refused."""

    start: Callable[[Place, str], tuple[Commands, Environment]]
    prompt_tokens_max: int = 40_000
    """A limit that it passes after some chapters, and a compacted conversation does not."""
    summarises: bool = True
    """Whether it asks the model for a summary; others drop what is old."""
    from_npm: bool = True

    @property
    def name(self) -> str:
        """Its program's name."""
        return self.start.__name__

    @property
    def is_here(self) -> bool:
        """Whether its program is in one of the folders."""
        return shutil.which(self.name, path=FOLDERS) is not None

    async def run(self, place: Place, task: str) -> str:
        """Give it the task; what it prints. It ends by itself, or with the caller's time."""
        place.project.mkdir()
        commands, environment = self.start(place, task)
        (place.project / "README.md").write_text("# A tiny repository used for a test\n")
        environment |= {"HOME": str(place.home), "PATH": f"{FOLDERS}:{os.environ['PATH']}"}
        environment |= {"LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1"}
        printed = ""
        for command in (["git", "init", "-q"], *commands):
            done = await trio.run_process(
                command,
                cwd=place.project,
                env=environment,
                stdin=b"",
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
            )
            printed += done.stdout.decode(errors="replace")
        return printed


KNOWN = (
    Client(pi),
    Client(opencode),
    Client(qwen),
    # It keeps about 8,000 bytes of a command's output.
    Client(cline, prompt_tokens_max=22_000, summarises=False),
    Client(openhands, from_npm=False),
    Client(gptme, summarises=False, from_npm=False),
)
CLIENTS = {client.name: client for client in KNOWN}
