"""The command line."""

import os
import subprocess
import sys

import pytest

import flashrt
from flashrt import settings, settings_page
from flashrt.cli import main, parser


def test_every_setting_is_in_the_help_with_its_variable_and_default(capsys):
    """`flashrt serve --help` is the whole truth."""
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])

    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    for field in settings.fields():
        assert settings.flag_name(field) in shown
        assert settings.env_name(field) in shown
        default = settings_page.default_text(field)
        assert not default or f"{settings.env_name(field)}; default {default}" in shown


def test_the_version_is_the_packages(capsys):
    """`flashrt --version`."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"flashrt {flashrt.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "the following arguments are required: COMMAND (see flashrt --help)"),
        (["sevre"], "argument COMMAND: invalid choice: 'sevre'"),
        (["serve", "--prot", "1"], "unrecognized arguments: --prot"),
        (["serve", "--port"], "argument --port: expected one argument"),
        (["serve", "--por", "1"], "unrecognized arguments: --por"),
        (["serve", "a", "b"], "unrecognized arguments: b"),
        (["serve", "--port", "x"], "--port is 'x'; it must be a whole number"),
        (["serve", "--host", "0.0.0.0"], "--host is 0.0.0.0, which others can reach"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_status_2(argv, words, capsys):
    """No usage text, no traceback: `flashrt: ...` on stderr."""
    status = main(argv)

    shown = capsys.readouterr()
    assert status == 2
    assert shown.out == ""
    assert shown.err.startswith(f"flashrt: {words}")
    assert shown.err.count("\n") == 1


def test_flags_that_are_not_given_leave_room_for_other_sources():
    """A default on the command line would hide variable and file."""
    asked = vars(parser().parse_args(["serve", "--no-auth", "--allowed-host", "a", "m"]))
    asked_twice = parser().parse_args(["serve", "--allowed-host", "a", "--allowed-host", "b"])

    assert asked == {"command": "serve", "model": "m", "no_auth": True, "allowed_host": ["a"]}
    assert asked_twice.allowed_host == ["a", "b"]


def test_the_module_is_the_command():
    """`python -m flashrt`, and it says what is wrong before torch is even imported."""
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "flashrt", "serve", "--port", "x"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 2
    assert ran.stderr.endswith("flashrt: --port is 'x'; it must be a whole number\n")
    assert " torch\n" not in ran.stderr


def test_a_reader_that_has_left_ends_a_command_without_a_word():
    """As with `| head`: status 1 and no traceback, for a long text and for one in a buffer."""
    for length in (1, 1_000_000):
        command = f"cli.COMMANDS = {{'top': lambda asked: print('x' * {length}) or 0}}"
        code = f"from flashrt import cli; {command}; raise SystemExit(cli.main(['top']))"
        reader, writer = os.pipe()
        os.close(reader)
        child = subprocess.run(
            [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False
        )
        os.close(writer)
        assert (child.returncode, child.stderr) == (1, b"")
