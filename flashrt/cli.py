"""The command line: which command, with which flags, and one line for what cannot be served."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

import flashrt
from flashrt import settings, settings_page
from flashrt.bench.engine import command as bench
from flashrt.client import chat, drain, options, top
from flashrt.disk import command as capsules
from flashrt.errors import CannotServe
from flashrt.inspect import command as inspect
from flashrt.setting_values import UNWRITABLE

CANNOT_SERVE_STATUS = 2
NOBODY_READS_STATUS = 1


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are ours: one line, no usage text above it."""

    def error(self, message: str) -> NoReturn:
        raise CannotServe(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status, or 2 for what cannot be served, or 1 if nobody reads."""
    try:
        asked = vars(parser().parse_args(argv))
        status = COMMANDS[asked.pop("command")](asked)
        sys.stdout.flush()
        return status
    except CannotServe as refusal:
        print(f"flashrt: {_in_one_line(str(refusal))}", file=sys.stderr)
        return CANNOT_SERVE_STATUS
    except BrokenPipeError:
        # Whoever read has left. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS_STATUS


def _in_one_line(message: str) -> str:
    """What was typed may hold line ends, and orders for the terminal."""
    return UNWRITABLE.sub(lambda found: repr(found[0])[1:-1], message)


def _serve(asked: Mapping[str, Any]) -> int:
    chosen = settings.load(asked)
    # torch takes seconds to import; a wrong flag or --help must not wait for it.
    from flashrt import serve

    return serve.run(chosen)


def _chat(asked: Mapping[str, Any]) -> int:
    return chat.run(options.Options.load(asked))


COMMANDS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "serve": _serve,
    "bench": bench.run,
    "chat": _chat,
    "drain": drain.run,
    "top": top.run,
    "capsules": capsules.run,
    "inspect": inspect.run,
}


OTHERS: Mapping[str, tuple[str, ModuleType]] = {
    "bench": ("measure the engine on this machine", bench),
    "chat": ("talk to a running server in this terminal", options),
    "drain": ("take a running server out softly, or back in", drain),
    "top": ("watch what a running server is doing", top),
    "capsules": ("list, verify or prune saved states on disk", capsules),
    "inspect": ("say what a checkpoint holds and what memory it will need", inspect),
}
"""What serves nothing: a line of help, and the module that has the description and the flags."""


def parser() -> argparse.ArgumentParser:
    """Everything that can be typed. A flag of `serve` that is not given leaves no attribute."""
    whole = Parser(
        prog="flashrt",
        description=flashrt.__doc__,
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"flashrt {flashrt.__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="serve a checkpoint over HTTP",
        description="Serve a checkpoint over HTTP. Every flag has an environment variable and a "
        "key in the TOML file of --config; see docs/settings.md.",
        epilog="Exit status: 0 after a signal, 1 if the engine has died, 2 with one line that says "
        "why if it cannot be served as asked.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    for field in settings.fields():
        _add(serve, field)
    for name, (text, part) in OTHERS.items():
        command = commands.add_parser(
            name, help=text, description=part.DESCRIPTION, allow_abbrev=False
        )
        part.add_arguments(command)
    return whole


def _add(serve: argparse.ArgumentParser, field: settings.Field) -> None:
    """Values stay text: settings convert them, so every source has the same messages."""
    text = _help(field)
    if field.name == "model":
        serve.add_argument("model", nargs="?", metavar="MODEL", help=text)
        return
    flag = settings.flag_name(field)
    if settings.kind(field) is bool:
        serve.add_argument(flag, action="store_true", help=text)
        return
    choices = field.metadata.get("choices")
    metavar = "|".join(choices) if choices else field.metadata["metavar"] or "N"
    action = "append" if settings.kind(field) is tuple else "store"
    serve.add_argument(flag, action=action, metavar=metavar, help=text)


def _help(field: settings.Field) -> str:
    facts = [settings.env_name(field)]
    if settings_page.default_text(field):
        facts.append(f"default {settings_page.default_text(field)}")
    if settings.kind(field) is tuple:
        facts.append("may be repeated")
    return f"{field.metadata['help']} [{'; '.join(facts)}]".replace("%", "%%")
