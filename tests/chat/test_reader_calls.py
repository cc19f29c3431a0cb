"""Calls in every spelling that models use, and what is none of them."""

import json
from typing import Any

import pytest

from flashrt.chat.drafts import CallsInThinking
from tests.chat.streams import CALL, JSON_CALL, Event, events, is_whole, new_reader, read

LS = [("run", {"command": "ls"})]
BARE_CALL = CALL.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
BARE_JSON = JSON_CALL.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")


def calls(what: str | list[Event], **options: Any) -> list[tuple[str, Any]]:
    """The complete calls, their arguments parsed."""
    found = read(what, **options)
    return [(found.calls[i][0], json.loads(found.calls[i][1])) for i in found.complete]


# -- JSON ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sloppy",
    [
        JSON_CALL,
        JSON_CALL.removesuffix("</tool_call>"),
        JSON_CALL.replace("}}\n</tool_call>", "}"),
        JSON_CALL.replace("}}", "}"),
        JSON_CALL.replace("}}", ""),
        JSON_CALL.replace('"arguments"', '"parameters"'),
        JSON_CALL.replace('{"command": "ls"}', '"{\\"command\\": \\"ls\\"}"'),
        JSON_CALL.replace('{"command": "ls"}}', '"{\\"command\\": \\"ls\\"}'),
        "<tool_call>" + JSON_CALL,
        JSON_CALL.replace("<tool_call>", "<tool_call><function_call>"),
    ],
)
@pytest.mark.parametrize("behind", ["", JSON_CALL, CALL])
def test_a_call_in_json_is_read(sloppy: str, behind: str):
    """Also with braces, closings or the outer frame forgotten or doubled."""
    if "}}" not in sloppy and "</tool_call>" not in sloppy and behind:
        sloppy += "</tool_call>"

    assert calls(sloppy + behind) == LS * (2 if behind else 1)
    assert read(sloppy + behind).text == ""


def test_several_objects_in_one_frame_are_several_calls():
    """As with functions."""
    two = f"<tool_call>\n{BARE_JSON}\n{BARE_JSON}\n</tool_call>"

    assert calls(two) == LS * 2


@pytest.mark.parametrize("control", [None, {}])
def test_a_functions_arguments_may_be_in_json(control: Any):
    """Tags outside, JSON inside; closed or not."""
    function = '<function=run>\n{"command": "</function>", "limit": 5}'
    for closing in ("", "\n</function>", "\n</function>\n</tool_call>", "</tool_call>"):
        text = f"<tool_call>\n{function}{closing}"
        what: Any = events(text) if control is None else [(text, False)]
        assert calls(what, control=control) == [("run", {"command": "</function>", "limit": 5})]
        assert read(what, control=control).text == ""
    assert calls(f"{function}\n</function>") == [("run", {"command": "</function>", "limit": 5})]
    assert calls("<tool_call><function=run>{}</function></tool_call>") == [("run", {})]


def test_a_functions_arguments_that_are_no_json_leave_the_call_open():
    """It is not run without them."""
    found = read("<tool_call>\n<function=run>\n{command: ls}\n</function>\n</tool_call>")

    assert (len(found.calls), found.complete) == (1, [])
    assert not is_whole(found.calls[0][1])


def test_markers_in_a_json_string_are_part_of_it():
    """Ids too: nothing in quotes ends anything."""
    text = "</tool_call> <tool_call> </think> <|im_start|> <function=run> }"

    assert calls(JSON_CALL.replace("ls", text)) == [("run", {"command": text})]


def test_arguments_in_json_are_streamed_as_they_grow():
    """From the first character on, whether they are an object or spelled."""
    for opening, quote in (('{"command": "', '"'), ('"{\\"command\\": \\"', '\\"')):
        reader = new_reader()
        reader.control("<tool_call>")
        reader.text('{"name": "run", "arguments": ' + opening)
        grown = [
            [one.delta.text for one in reader.text(text)] for text in ("ls", " -l", quote, "}", "?")
        ]
        assert grown[:4] == [["ls"], [" -l"], ['"'], []]


def test_constants_that_json_does_not_have_are_strings():
    """NaN is no number, and nothing is guessed about a string."""
    call = JSON_CALL.replace('"ls"', 'NaN, "limit": "5", "x": Infinity')

    assert calls(call) == [("run", {"command": "NaN", "limit": "5", "x": "Infinity"})]


@pytest.mark.parametrize("behind", ["", "\nand more", CALL])
def test_json_that_breaks_off_is_left_open_for_good(behind: str):
    """What was shown of it cannot be taken back, but nobody may run it; what follows is read."""
    broken = JSON_CALL.replace('"ls"', '"a" "b"')

    found = read(broken + behind)

    assert not is_whole(found.calls[0][1])
    assert 0 not in found.complete
    assert found.complete == ([1] if behind == CALL else [])
    assert found.text.startswith('"b"')


@pytest.mark.parametrize(
    "text",
    ["<tool_call>\n{}\n", "<tool_call>{'name': 'run'}", '<tool_call>{"name"', "<tool_call>{"],
)
def test_an_object_that_is_no_call_is_text(text: str):
    """All of it, as it was written."""
    assert read(f"a {text}").text == f"a {text}"


@pytest.mark.parametrize("end", range(len("<tool_call>"), JSON_CALL.index("\n</tool_call>")))
@pytest.mark.parametrize("cut_off", [True, False])
def test_json_that_is_cut_off_is_never_whole(end: int, cut_off: bool):
    """At any place; ended by itself, only where all but the last brace stood."""
    found = read(JSON_CALL[:end], cut_off=cut_off)

    whole = not cut_off and JSON_CALL[:end].endswith('"}')
    assert found.complete == ([0] if whole else [])
    assert [is_whole(arguments) for _, arguments in found.calls] == [whole] * len(found.calls)
    if cut_off:
        assert found.text == ""


# -- frames -------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [BARE_CALL, BARE_JSON])
@pytest.mark.parametrize(
    "frame",
    [
        "<function_invocation>\n{}\n</function_invocation>",
        "<tools>{}</tools>",
        "<tool_calls>\n<tool_call>\n{}\n</tool_call>\n</tool_calls>",
        "<tool_call>\n<function_call>\n{}\n</function_call>\n</tool_call>",
        "<tools>\n{}\n",
    ],
)
@pytest.mark.parametrize("before", ["", "I look.\n", "  "])
def test_a_call_in_another_frame_is_a_call(call: str, frame: str, before: str):
    """Frames may stand in each other; none of them is shown."""
    text = before + frame.replace("{}", call)

    assert calls(text) == LS
    assert read(text).text.strip() == before.strip()


def test_a_function_without_a_frame_is_a_call():
    """At the start of a line, for a tool on offer; several in a row too."""
    assert calls(f"I look.\n{BARE_CALL}") == LS
    assert calls(f"{BARE_CALL}\n{BARE_CALL}\nDone.") == LS * 2
    assert read(f"{BARE_CALL}\n{BARE_CALL}\nDone.").text == "Done."


@pytest.mark.parametrize(
    "text",
    [
        f"Write {BARE_CALL}",
        f"```\n{BARE_CALL}\n```",
        f"~~~xml\n<tools>\n{BARE_CALL}\n</tools>\n~~~",
        BARE_CALL.replace("run", "walk"),
        f"<tools>{BARE_CALL.replace('run', 'walk')}",
        BARE_JSON,
        f"`<tools>` and </tools> {BARE_JSON}",
        '<tools>\n{"type": "function", "function": {"name": "run"}}\n</tools>',
        '<tools>\n{"name": "run", "description": "x", "parameters": {}}\n</tools>',
        "a </function_call> b",
        "<function=ru",
    ],
)
def test_what_is_written_about_calls_is_text(text: str):
    """In prose, in code, about other tools, as a description; every letter of it."""
    found = read(text)

    assert (found.calls, found.text) == ([], text)


def test_in_its_own_frame_any_name_makes_a_call():
    """The client says that there is no such tool, and the model corrects itself."""
    for call in (CALL, JSON_CALL):
        assert calls(call.replace("run", "walk")) == [("walk", {"command": "ls"})]


@pytest.mark.parametrize(
    "drifted",
    [
        CALL.replace("=run", '="run"').replace("=command", "='command'"),
        CALL.replace("<function=run>", '<function name="run">'),
        CALL.replace("<parameter=command>", '<parameter name = "command" type="string">'),
        CALL.replace("</parameter>", "</ parameter >").replace("</function>", "</function >"),
        CALL.replace("<function=run>", "< function = run >"),
    ],
)
def test_drifted_tags_are_read(drifted: str):
    """Quotes, blanks, attributes."""
    assert calls(drifted) == LS
    assert read(drifted).text == ""


# -- thinking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [CALL, JSON_CALL, f"{CALL}\n{CALL}\n"])
@pytest.mark.parametrize("control", [None, {}])
def test_a_call_that_ends_the_answer_inside_thinking_is_taken(call: str, control: Any):
    """The model forgot to close its thinking; by ids and by letters."""
    what: Any = f"hm\n{call}"
    if control is not None:
        what = [(what, False)]

    found = read(what, opens_thinking=True, control=control)

    assert [name for name, _ in found.calls] == ["run"] * (2 if call.count("ls") > 1 else 1)
    assert found.complete == list(range(len(found.calls)))
    assert (found.thinking, found.text) == ("hm", "")


@pytest.mark.parametrize(
    "text",
    [
        f"hm\n{CALL}</think>",
        f"hm\n{CALL} or not",
        f"hm\n{CALL.partition('</parameter>')[0]}",
        f"hm\n{CALL}\n<tool_call>\n",
        "hm <tool_call> is how calls begin",
    ],
)
def test_any_other_call_in_thinking_is_thought(text: str):
    """One that is not whole, that is not the end, or behind which thinking is closed."""
    found = read(text, opens_thinking=True)

    assert found.calls == []
    assert found.thinking == text.removesuffix("</think>").rstrip("\n")


def test_a_draft_and_then_the_call():
    """The draft is thought, the call behind the block is run."""
    found = read(f"a {CALL} b</think>{CALL}", opens_thinking=True)

    assert found.thinking == f"a {CALL} b"
    assert found.complete == [0]


def test_the_setting_may_ignore_all_calls_in_thinking():
    """Then every call in it is thought, and shown as it comes."""
    found = read(f"hm {CALL}", opens_thinking=True, calls_in_thinking=CallsInThinking.IGNORE)

    assert (found.calls, found.thinking) == ([], f"hm {CALL}")


def test_a_draft_that_the_length_cuts_is_not_shown():
    """Nobody knows yet what it is."""
    found = read(f"hm {CALL}", opens_thinking=True, cut_off=True)

    assert (found.calls, found.thinking) == ([], "hm ")


def test_thinking_may_come_after_calls():
    """And calls in it are numbered on."""
    found = read(f"{CALL}<think>hm {CALL}")

    assert found.complete == [0, 1]


def test_events_tell_ids_from_letters():
    """What the tests above stand on."""
    assert events("a<tool_call>b") == [("a", False), ("<tool_call>", True), ("b", False)]
