"""The built-in tools and what a model is told."""

import json

import pytest

from flashrt.client.answer import Call
from flashrt.client.tools import RESULT_CHARS_MAX, TOOLS, Toolbox, bounded


def told(name: str, arguments: object, *, allow: bool = True) -> str:
    """What the model is told about a call."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    message = Toolbox(lambda _: allow).run(Call("call-1", name, text))
    assert message["role"] == "tool"
    assert message["tool_call_id"] == "call-1"
    content: str = message["content"]
    return content


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder: `here`, with a file and a folder in it and a secret beside it."""
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / "note.txt").write_text("hello\n")
    (tmp_path / "secret").write_text("sesame")
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("read_file", {"path": "note.txt"}, "hello\n"),
        ("list_files", {"folder": "."}, "note.txt\nsub/"),
        ("list_files", {"folder": "sub"}, "the folder is empty"),
        ("run_command", {"command": "cat note.txt"}, "exit status 0\nhello\n"),
        ("calculate", {"expression": "6 * 7"}, "42"),
    ],
)
def test_each_tool_does_what_it_says(name, arguments, words):
    """One example each."""
    assert told(name, arguments) == words


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("read_file", {"path": "missing"}, "error: missing is no file"),
        ("read_file", {"path": "."}, "error: . is no file"),
        ("read_file", {"path": "a\0b"}, "error: "),
        ("list_files", {"folder": "missing"}, "error: [Errno 2] No such file or directory"),
        ("run_command", {"command": "a\0b"}, "error: "),
        ("calculate", {"expression": "1 / 0"}, "error: division by zero"),
        ("calculate", {"expression": "*".join(["9**999"] * 9)}, "error: Exceeds the limit"),
        ("calculate", {"expression": 7}, "error: calculate takes one text, `expression`"),
        ("calculate", {}, "error: calculate takes one text, `expression`"),
        ("calculate", "[]", "error: calculate takes one text, `expression`"),
        ("calculate", '{"expre', "error: Unterminated string"),
        ("dance", {}, "error: there is no tool dance; there are read_file, list_files"),
    ],
)
def test_what_goes_wrong_is_told_as_a_text(name, arguments, words):
    """The model can try something else; the program goes on."""
    assert told(name, arguments).startswith(words)


@pytest.mark.parametrize("path", ["../secret", "link", "/etc/passwd"])
@pytest.mark.parametrize("tool", TOOLS[:2], ids=lambda tool: tool.name)
def test_files_outside_the_current_folder_are_left_alone(tool, path, folder):
    """By whatever road: a command could read them, but a person is asked about that."""
    (folder / "link").symlink_to(folder.parent / "secret")

    assert "is not below the current folder" in told(tool.name, {tool.parameter: path})


def test_a_command_that_is_not_allowed_does_not_run(folder):
    """The model hears of it."""
    words = told("run_command", {"command": "touch ran"}, allow=False)

    assert words == "the user did not allow this"
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": "long"}),
        ("list_files", {"folder": "many"}),
        ("run_command", {"command": "cat long"}),
    ],
)
def test_no_result_is_longer_than_its_bound(name, arguments, folder):
    """The beginning is kept, and the model is told that there is more."""
    (folder / "long").write_text("語" * (RESULT_CHARS_MAX + 1))
    (folder / "many").mkdir()
    for number in range(60):
        (folder / "many" / f"{number:0200}").touch()

    result = told(name, arguments)

    assert len(result) <= RESULT_CHARS_MAX + 50
    assert result.endswith(f"\n[cut: only the first {RESULT_CHARS_MAX} characters]")


def test_what_just_fits_is_whole():
    """The bound itself is no reason to cut."""
    assert bounded("x" * RESULT_CHARS_MAX) == "x" * RESULT_CHARS_MAX


def test_a_name_that_is_no_text_can_still_be_sent(folder):
    """Linux takes any bytes as a name; JSON does not."""
    (folder / "sub" / "a\udcffb").touch()

    assert told("list_files", {"folder": "sub"}) == "a?b"


def test_every_tool_is_offered_with_its_one_parameter():
    """As the API has it."""
    offered = [offer["function"] for offer in Toolbox(lambda _: True).offers()]

    assert [function["name"] for function in offered] == [tool.name for tool in TOOLS]
    assert [function["parameters"]["required"] for function in offered] == [
        [tool.parameter] for tool in TOOLS
    ]
