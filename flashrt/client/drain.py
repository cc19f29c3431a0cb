"""`flashrt drain`: take a server out softly, and back in."""

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from flashrt.client.options import add_server_arguments, api_key
from flashrt.client.server import Server
from flashrt.errors import NoAnswer

FAILED = 1
INTERRUPTED = 130

POLL_S = 0.2

DESCRIPTION = (
    "Begin a soft drain: the server goes on with the conversations that it knows and takes no new "
    "ones; its /health/ready says 404 to the router. Stop the process when they have ended, or "
    "never: --undo ends the drain."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that can be typed behind `flashrt drain`."""
    add_server_arguments(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--undo", action="store_true", help="end the drain: take new conversations")
    what.add_argument(
        "--wait", action="store_true", help="return when no request runs or waits there"
    )


def run(asked: Mapping[str, Any]) -> int:
    """Ask, and say what came of it; the exit status: 0, 1 without an answer, 130 after Ctrl-C."""
    server = Server(asked["url"], api_key(asked["api_key"]))
    try:
        status = server.drain(undo=asked["undo"]).status
        print(f"{server.url} is {status.replace('_', ' ')}", flush=True)
        if asked["wait"]:
            _wait_until_idle(server)
            print("no request runs or waits there", flush=True)
    except NoAnswer as error:
        print(f"flashrt: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _wait_until_idle(server: Server) -> None:
    while (state := server.state()).rendering or state.queued or state.running is not None:
        time.sleep(POLL_S)
