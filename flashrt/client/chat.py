"""`flashrt chat`: one turn, or a loop of them."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from flashrt.client.conversation import Conversation
from flashrt.client.options import Options
from flashrt.client.screen import Kind, Screen
from flashrt.client.server import Server
from flashrt.client.tools import TOOLS, Toolbox
from flashrt.errors import NoAnswer

FAILED = 1
INTERRUPTED = 130
"""What a shell reports for a program that Ctrl-C ended."""

PROMPT = "> "
CANCELLED = "cancelled"
NOBODY = "not run: there is no terminal to ask on; with --yes commands run without a question"
HOW_TO_LEAVE = "Ctrl-C again, Ctrl-D or /quit leaves"


def run(options: Options) -> int:
    """Talk; the exit status: 0, 1 if there was no answer, 130 if Ctrl-C ended it."""
    screen = Screen()
    try:
        talk = _begin(options, screen)
        if options.prompt:
            talk.turn(" ".join(options.prompt))
        else:
            _loop(talk)
    except NoAnswer as error:
        screen.line(Kind.FAULT, f"flashrt: {error}")
        return FAILED
    except KeyboardInterrupt:
        screen.line(Kind.NOTE, CANCELLED)
        return INTERRUPTED
    screen.end_line()
    return 0


def _begin(options: Options, screen: Screen) -> Conversation:
    """A conversation with a server that answers; raises NoAnswer."""
    server = Server(options.url, options.api_key)
    models = server.models()
    limit = {} if options.max_tokens is None else {"max_tokens": options.max_tokens}
    return Conversation(
        server=server,
        screen=screen,
        toolbox=Toolbox(_asker(options, screen), () if options.no_tools else TOOLS),
        wish={"model": options.model or models[0], **limit},
        rounds_max=options.max_rounds,
        system=options.system,
        thinks=options.think,
    )


def _asker(options: Options, screen: Screen) -> Callable[[str], bool]:
    """Who decides whether a command runs."""

    def ask(command: str) -> bool:
        screen.line(Kind.CALL, command)
        return screen.allows("run this?")

    def refuse(_command: str) -> bool:
        screen.line(Kind.NOTE, NOBODY)
        return False

    if options.yes:
        return lambda _command: True
    return ask if screen.has_person else refuse


# -- the loop --------------------------------------------------------------------------------------


def _loop(talk: Conversation) -> None:
    """Lines from the terminal, until there are no more."""
    if talk.screen.has_person:
        with suppress(ImportError):
            import readline  # noqa: F401  with it, input() edits lines and remembers them
        words = ", ".join(COMMANDS)
        talk.screen.line(Kind.NOTE, f"{talk.wish['model']} at {talk.server.url}; {words}")
    with suppress(EOFError):
        for line in _lines(talk.screen):
            _obey(talk, line)


def _lines(screen: Screen) -> Iterator[str]:
    """Lines that are not empty. Raises EOFError at their end, or at the second Ctrl-C in a row."""
    interrupted = False
    while True:
        try:
            line = screen.read_line(PROMPT).strip()
        except KeyboardInterrupt:
            if interrupted:
                raise EOFError from None
            interrupted = True
            screen.line(Kind.NOTE, HOW_TO_LEAVE)
            continue
        interrupted = False
        if line:
            yield line


def _obey(talk: Conversation, line: str) -> None:
    """Do what a line says; raises EOFError to leave."""
    if line in COMMANDS:
        COMMANDS[line](talk)
    elif COMMAND.fullmatch(line):
        talk.screen.line(Kind.NOTE, f"{line} is no command; there are {', '.join(COMMANDS)}")
    else:
        _say(talk, line)


def _say(talk: Conversation, text: str) -> None:
    """One turn. Where nobody is there to try again, what fails ends everything."""
    try:
        talk.turn(text)
    except KeyboardInterrupt:
        talk.screen.line(Kind.NOTE, CANCELLED)
    except NoAnswer as error:
        if not talk.screen.has_person:
            raise
        talk.screen.line(Kind.FAULT, f"flashrt: {error}")


def _new(talk: Conversation) -> None:
    talk.begin()
    talk.screen.line(Kind.NOTE, "a new conversation")


def _think(talk: Conversation) -> None:
    talk.thinks = not talk.thinks
    talk.screen.line(Kind.NOTE, f"thinking is {'on' if talk.thinks else 'off'}")


def _quit(_talk: Conversation) -> None:
    raise EOFError


COMMANDS: Mapping[str, Callable[[Conversation], None]] = {
    "/new": _new,
    "/think": _think,
    "/quit": _quit,
}

COMMAND = re.compile(r"/\w+")
"""A mistyped command; a path has a second slash or words behind it, and is said."""
