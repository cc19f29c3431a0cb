"""Tools of Responses: what the model sees of each, and how its calls find their way back."""

import pytest

from flashrt.errors import BadRequest
from flashrt.protocols.responses_tools import ToolName, choice, offer

F = {"type": "function", "name": "f"}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}
PATCH = {"type": "custom", "name": "patch", "description": "Edits.", "format": GRAMMAR}
GROUP = {
    "type": "namespace",
    "name": "many",
    "description": "Agents.",
    "tools": [
        {"type": "function", "name": "spawn", "description": "One more."},
        {"type": "function", "name": "wait"},
    ],
}


def test_a_group_is_flattened_and_its_calls_find_back():
    """The model calls one name; the client is told group and name."""
    found = offer([F, GROUP])

    names = [tool["function"]["name"] for tool in found.tools]
    assert names == ["f", "many__spawn", "many__wait"]
    assert found.called("many__wait") == ToolName("wait", "many")
    assert found.tools[1]["function"]["description"] == "Agents.\n\nOne more."


def test_a_custom_tool_is_a_function_of_one_text():
    """With its grammar to read."""
    (tool,) = offer([PATCH]).tools

    parameters = tool["function"]["parameters"]
    assert parameters["required"] == ["input"]
    assert "start: /a/" in parameters["properties"]["input"]["description"]
    assert offer([PATCH]).called("patch").custom


def test_the_apis_own_tools_are_left_out():
    """Codex offers a web search to every server."""
    found = offer([{"type": "web_search", "external_web_access": True}, F])

    assert [tool["function"]["name"] for tool in found.tools] == ["f"]
    assert found.left_out == {"web_search"}


def test_of_two_tools_with_one_name_the_first_counts():
    """Tools may come again with items."""
    found = offer([{**F, "description": "1"}, {**F, "description": "2"}])
    assert [tool["function"]["description"] for tool in found.tools] == ["1"]


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({}, "tools[1].type"),
        ({"type": "function"}, "tools[1].name"),
        ({"type": "function", "name": "a b"}, "tools[1].name"),
        ({"type": "function", "name": "a", "parameters": []}, "tools[1].parameters"),
        ({"type": "namespace", "name": "n", "tools": 3}, "tools[1].tools"),
        (
            {"type": "namespace", "name": "n", "tools": [{"type": "custom"}]},
            "tools[1].tools[0].name",
        ),
    ],
)
def test_a_wrong_tool_is_named_by_its_path(tool, param):
    """Inside of groups too."""
    with pytest.raises(BadRequest) as caught:
        offer([F, tool])
    assert caught.value.param == param


ALL = offer([F, GROUP, PATCH, {"type": "web_search"}])
NAMED = {"type": "function", "function": {"name": "many__wait"}}


@pytest.mark.parametrize(
    "wish",
    [
        {"type": "function", "name": "many__wait"},
        {"type": "function", "name": "wait", "namespace": "many"},
    ],
)
def test_a_tool_is_chosen_by_either_of_its_names(wish):
    """As chat chooses it, among all that are on offer."""
    assert choice(wish, ALL) == (NAMED, ALL.tools)


def allowed(mode: str, *names: str) -> dict[str, object]:
    tools = [{"type": "function", "name": name} for name in names]
    return {"type": "allowed_tools", "mode": mode, "tools": tools}


def test_allowed_tools():
    """Some that must be called, all that may, or none."""
    everything = [tool["function"]["name"] for tool in ALL.tools]
    wish, some = choice(allowed("required", "f", "patch"), ALL)

    assert wish == "required"
    assert [tool["function"]["name"] for tool in some] == ["f", "patch"]
    assert choice(allowed("auto", *everything), ALL) == ("auto", ALL.tools)
    assert choice(allowed("auto"), ALL) == ("none", ALL.tools)


@pytest.mark.parametrize(
    ("wish", "param", "words"),
    [
        ({"type": "function", "name": "x"}, "tool_choice.name", "many__spawn"),
        ({"type": "web_search"}, "tool_choice", "not served"),
        ({"type": "what"}, "tool_choice", "allowed_tools"),
        (allowed("auto", "f"), "tool_choice", "Leave the others out"),
        (allowed("often", "f"), "tool_choice.mode", "required"),
        (allowed("required", "x"), "tool_choice.tools[0].name", "not among"),
    ],
)
def test_a_choice_that_cannot_be_honoured_is_refused_by_name(wish, param, words):
    """With the way out."""
    with pytest.raises(BadRequest) as caught:
        choice(wish, ALL)
    assert caught.value.param == param
    assert words in caught.value.message
