"""What can be said to `flashrt chat`, and which server any command asks."""

import argparse
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs

from flashrt.client.server import CONNECTIONS
from flashrt.errors import CannotServe

API_KEY = "FLASHRT_API_KEY"
"""The variable from which the server takes a key, too."""

DESCRIPTION = (
    "Talk to a running server, with a few built-in tools: files are read below the current folder "
    "only, and no command runs unless you say yes. At the prompt /new begins anew, /think turns "
    "thinking on or off, /quit or Ctrl-D leaves, and Ctrl-C cancels an answer."
)


@attrs.frozen
class Options:
    """What was said. `model` None: the first one that the server names."""

    url: str
    api_key: str | None = attrs.field(repr=False)
    model: str | None
    system: str | None
    think: bool
    max_tokens: int | None
    max_rounds: int
    no_tools: bool
    yes: bool
    prompt: list[str]

    @classmethod
    def load(cls, asked: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> "Options":
        """From the parser's values. Raises CannotServe."""
        return cls(**{**asked, "api_key": api_key(asked["api_key"], environ)})


def api_key(given: str | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The key of the flag, else of the environment. Raises CannotServe."""
    key = (given or environ.get(API_KEY, "")).strip()
    if not (key.isascii() and key.isprintable()):
        raise CannotServe("the API key has characters that no HTTP header can carry")
    return key or None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that can be typed behind `flashrt chat`."""
    add_server_arguments(parser)
    add = parser.add_argument
    add("--model", metavar="NAME", help="model to talk to [default: the first of /v1/models]")
    add("--system", metavar="TEXT", help="text that the conversation begins with")
    add("--think", action="store_true", help="let the model think before it answers")
    add("--max-tokens", type=_count, metavar="N", help="longest answer in tokens")
    add(
        "--max-rounds",
        type=_count,
        default=8,
        metavar="N",
        help="answers with tool calls in a row, before you are asked again [default %(default)s]",
    )
    add("--no-tools", action="store_true", help="offer no tools")
    add("--yes", action="store_true", help="run commands without asking")
    add("prompt", nargs="*", metavar="PROMPT", help="say this, and leave after the answer")


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Which server is meant, for every command that asks one."""
    parser.add_argument(
        "--url",
        type=_url,
        default="http://127.0.0.1:8000/v1",
        help="where the server is [default %(default)s]",
    )
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        help=f"key of the server; every user of the machine can read it here, not so in {API_KEY}",
    )


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        if parts.scheme in CONNECTIONS and parts.hostname and parts.port != 0:
            # Where no path is named, the one that every server of this API has.
            return text if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1"
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no URL such as http://127.0.0.1:8000/v1")


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
