"""Input items: every kind that clients send back, and what is wrong by its path."""

import pytest

from flashrt.chat.messages import IMAGE
from flashrt.chat.request import Json
from flashrt.errors import BadRequest
from flashrt.protocols.responses_input import COMPACTED, messages_of, resolved, tools_in

USER = {"role": "user", "content": "a"}


def call(call_id: str, **more: object) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **more}


def result(call_id: str, output: object = "r") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def test_one_turn_of_the_assistants_is_one_message():
    """Thinking, text and calls, and text behind a call, until somebody else says something."""
    items = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
        call("1"),
        {"role": "assistant", "content": "y"},
        call("2"),
        result("1"),
        {"role": "assistant", "content": "z"},
    ]
    first, tool, last = messages_of(items)

    assert (first["reasoning_content"], first["content"]) == ("t", "xy")
    assert [one["id"] for one in first["tool_calls"]] == ["1", "2"]
    assert tool == {"role": "tool", "tool_call_id": "1", "content": "r"}
    assert last == {"role": "assistant", "content": "z"}


@pytest.mark.parametrize(
    "kind",
    [
        *("web_search_call", "file_search_call", "computer_call", "computer_call_output"),
        *("code_interpreter_call", "image_generation_call", "local_shell_call"),
        *("local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call"),
        *("mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"),
        *("tool_search_call", "tool_search_output", "additional_tools", "compaction_trigger"),
        *("program", "program_output", "configuration_update"),
    ],
)
def test_items_of_the_apis_own_tools_end_no_session(kind):
    """They are left out: nobody here could have made them."""
    assert messages_of([USER, {"type": kind, "id": "x", "output": []}]) == messages_of([USER])


def test_what_was_compacted_elsewhere_is_said_to_be_lost():
    """Instead of an error with every further request."""
    items = [{"type": "compaction", "encrypted_content": "gAAA"}, USER]
    assert messages_of(items)[0] == {"role": "user", "content": COMPACTED}


def test_a_message_between_agents_is_its_text():
    """What is sealed in it cannot be read."""
    content = [{"type": "input_text", "text": "do"}, {"type": "encrypted_content", "x": "?"}]
    assert messages_of([{"type": "agent_message", "content": content}])[0]["content"] == "do"


def test_a_call_that_was_cut_is_forgotten_unless_it_has_a_result():
    """Nobody executed it, and the model must not think so."""
    cut = call("1", status="incomplete")

    assert messages_of([USER, cut, USER]) == [USER, USER]
    assert len(messages_of([USER, cut, result("1")])[1]["tool_calls"]) == 1


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("r", "r"),
        (None, ""),
        ([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}], "ab"),
        ({"success": True}, '{"success":true}'),
    ],
)
def test_a_result_is_a_text_however_it_is_sent(output, text):
    """Text, parts, and what some clients send instead."""
    assert messages_of([call("1"), result("1", output)])[1]["content"] == text


def test_a_result_with_an_image_is_read_all_the_same():
    """The model is told of it; a refusal would end the session."""
    seen = [{"type": "input_text", "text": "see "}, {"type": "input_image", "image_url": "data:"}]

    assert messages_of([call("1"), result("1", seen)])[1]["content"] == f"see {IMAGE}"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"role": "tool", "content": "x"}, "input[1].role"),
        ({"content": "x"}, "input[1].role"),
        ({"type": "what"}, "input[1].type"),
        ({"type": 3}, "input[1].type"),
        ({"role": "user", "content": 3}, "input[1].content"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "input[1].content[0]"),
        (result("1", [{"type": "what"}]), "input[1].output[0]"),
        ({"type": "function_call", "call_id": "x"}, "input[1].name"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(item, param):
    """The place in `input`."""
    with pytest.raises(BadRequest) as caught:
        messages_of([USER, item])
    assert caught.value.param == param


def test_paths_count_from_the_new_items():
    """What stands before them was read before."""
    with pytest.raises(BadRequest) as caught:
        messages_of([USER, USER, {"role": "x"}], known=2)
    assert caught.value.param == "input[0].role"


def test_a_reference_needs_an_id_that_is_held():
    """Anything else names its place."""
    for reference in ({"type": "item_reference"}, {"id": "x"}, {"id": 3}):
        with pytest.raises(BadRequest) as caught:
            resolved([USER, reference], lambda item_id: None)
        assert caught.value.param == "input[1].id"


def test_tools_are_found_in_items():
    """In a list; what is none is passed over."""
    items = [
        {"type": "tool_search_output", "tools": [{"type": "function", "name": "f"}, 3]},
        {"type": "additional_tools", "tools": "x"},
    ]
    assert tools_in(items) == [{"type": "function", "name": "f"}]
