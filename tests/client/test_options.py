"""The flags of `flashrt chat`."""

import pytest

from flashrt.cli import main, parser
from flashrt.client.options import API_KEY, Options


def options(*arguments: str, **environ: str) -> Options:
    """As the command line makes them."""
    asked = vars(parser().parse_args(["chat", *arguments]))
    del asked["command"]
    return Options.load(asked, environ)


def test_without_flags_the_local_server_is_asked():
    """The address is the one that `flashrt serve` listens on by itself."""
    plain = options()

    assert plain.url == "http://127.0.0.1:8000/v1"
    assert (plain.prompt, plain.max_rounds, plain.no_tools, plain.yes) == ([], 8, False, False)


def test_a_key_comes_from_the_flag_or_the_servers_own_variable():
    """The flag counts first; blanks around a key are none of it, and no key is none."""
    assert options().api_key is None
    assert options(**{API_KEY: " from environ\n"}).api_key == "from environ"
    assert options("--api-key", "flag", **{API_KEY: "from environ"}).api_key == "flag"


def test_a_key_is_never_printed():
    """Options may end up in a traceback."""
    assert "sesame" not in repr(options("--api-key", "sesame"))


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("http://a:8000", "http://a:8000/v1"),
        ("http://a:8000/", "http://a:8000/v1"),
        ("https://a/gate/v1", "https://a/gate/v1"),
        ("http://a/v1/", "http://a/v1/"),
    ],
)
def test_a_url_without_a_path_means_v1(said, asked):
    """As the server's own `listening` line shows it."""
    assert options("--url", said).url == asked


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--url", "localhost:8000"], "argument --url: 'localhost:8000' is no URL such as http://"),
        (["--url", "ftp://a"], "argument --url: 'ftp://a' is no URL"),
        (["--url", "http://"], "argument --url: 'http://' is no URL"),
        (["--url", "http://a:99999"], "argument --url: 'http://a:99999' is no URL"),
        (["--max-rounds", "0"], "argument --max-rounds: '0' is no whole number above 0"),
        (["--max-tokens", "many"], "argument --max-tokens: 'many' is no whole number above 0"),
        (["--api-key", "schlüssel"], "the API key has characters that no HTTP header can carry"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_status_2(argv, words, capsys):
    """As everywhere on the command line."""
    status = main(["chat", *argv])

    shown = capsys.readouterr()
    assert status == 2
    assert shown.err.startswith(f"flashrt: {words}")
    assert shown.err.count("\n") == 1


def test_the_help_names_every_command_of_the_prompt(capsys):
    """Whoever reads it knows how to get out again."""
    from flashrt.client.chat import COMMANDS

    with pytest.raises(SystemExit):
        main(["chat", "--help"])

    shown = capsys.readouterr().out
    assert [command for command in COMMANDS if command not in shown] == []
