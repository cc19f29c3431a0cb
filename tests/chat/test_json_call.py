"""One object that is a tool call."""

import json

import pytest

from flashrt.chat.json_call import SCALAR_MAX, JsonCall


def fed(text: str, offered: tuple[str, ...] | None = None, size: int = 0) -> tuple[JsonCall, str]:
    """A call that was given `text`, and the arguments that it let out."""
    call = JsonCall(offered)
    written = ""
    for i in range(0, len(text), size or len(text)):
        piece = text[i : i + (size or len(text))]
        taken = call.feed(piece)
        written += call.written()
        if taken < len(piece):
            break
    return call, written


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize(
    "text",
    [
        '{"name": "run", "arguments": {"command": "ls"}}',
        '{"name": "run", "parameters": {"command": "ls"}}',
        '{"name": "run", "arguments": "{\\"command\\": \\"ls\\"}"}',
        '{"arguments": {"command": "ls"}, "name": "run"}',
        '{"type": "function", "id": "c1", "name": " run ", "arguments": {"command": "ls",},}',
        '\n{ "name" : "run" , "arguments" : " { \\"command\\":\\n\\"ls\\" } " }',
    ],
)
def test_a_call_is_read_in_every_spelling(text: str, size: int):
    """Keys in any order, arguments as an object or spelled in a string."""
    call, written = fed(text, size=size)

    assert (call.name, call.over, call.broken) == ("run", True, False)
    assert json.loads(written + call.close()) == {"command": "ls"}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "run"}',
        '{"name": "run", "arguments": null}',
        '{"name": "run", "arguments": ""}',
        '{"name": "run", "arguments": {}}',
    ],
)
def test_a_call_may_have_no_arguments(text: str):
    """However that is written."""
    call, written = fed(text)

    assert call.is_named
    assert written + call.close() == "{}"


@pytest.mark.parametrize(
    "text",
    [
        '{"title": "run"}',
        '{"name": "run", "description": "Runs.", "parameters": {}}',
        '{"type": "object"}',
        '{"name": 5}',
        '{"name": "  "}',
        '{"name": "run", "arguments": [1]}',
        '{"name": "run", "arguments": "ls"}',
        '{"name": "run", "name": "run"}',
        '{"arguments": {}}',
        '{"id": "' + "x" * SCALAR_MAX + '"}',
        '["name"]',
    ],
)
@pytest.mark.parametrize("size", [0, 1])
def test_what_is_no_call_breaks_before_it_has_a_name(text: str, size: int):
    """So it can still be shown as the text that it was."""
    call, _ = fed(text, size=size)

    assert (call.broken, call.is_named) == (True, False)


def test_only_offered_names_count_where_it_matters():
    """Outside of the model's own marker."""
    assert fed('{"name": "run"}', ("run",))[0].over
    assert fed('{"name": "walk"}', ("run",))[0].broken
    assert fed('{"name": "walk"}')[0].over


def test_arguments_wait_for_the_name():
    """A client must know what it runs; then they grow as they come."""
    call, written = fed('{"arguments": {"command": "l')
    assert (call.is_named, written) == (False, '{"command":"l')

    call, _ = fed('{"name": "run", "arguments": {"command": "l')
    assert call.feed("s") == 1
    assert (call.is_named, call.written()) == (True, "s")


@pytest.mark.parametrize(
    ("text", "may_close", "is_whole"),
    [
        ('{"name": "run", "arguments": {"limit": 5', True, False),
        ('{"name": "run", "arguments": {"flags": ["a"', True, False),
        ('{"name": "run", "arguments": {"command": "l', False, False),
        ('{"name": "run", "arguments": {"command":', False, False),
        ('{"name": "run", "arguments": {"command": "ls"}', True, True),
        ('{"name": "run", "arguments": "{}', True, True),
        ('{"name": "run", "arguments": "{', False, False),
    ],
)
def test_only_braces_may_be_forgotten(text: str, may_close: bool, is_whole: bool):
    """Never the end of a string or a value; and the last brace comes with the end alone."""
    call, written = fed(text)

    assert (call.may_close, call.is_whole) == (may_close, is_whole)
    with pytest.raises(json.JSONDecodeError):
        json.loads(written)
    if may_close:
        json.loads(written + call.close())


def test_a_marker_in_a_string_is_part_of_it():
    """In keys, names and values; not behind a spelled object, where only the quote is missing."""
    inside = ['{"na', '{"name": "ru', '{"name": "run", "arguments": {"a": "', '{"arguments": "{']
    outside = ["{", '{"name": "run"', '{"name": "run", "arguments": {', '{"arguments": "{}']

    assert [fed(text)[0].in_string for text in inside] == [True] * 4
    assert [fed(text)[0].in_string for text in outside] == [False] * 4
