"""Tools, the choice among them, and structured output."""

import pytest

from flashrt.chat.shape import CallShape, JsonShape, OneCall
from flashrt.errors import BadRequest
from flashrt.protocols.messages_tools import OutputFormat, ToolChoice, offered, structure

SCHEMA = {"type": "object"}
FIELD = "output_config.format"
READ = {"name": "read", "description": "Reads.", "input_schema": SCHEMA}
TOOLS = offered([READ, {"name": "run"}])
FUNCTIONS = tuple(tool["function"] for tool in TOOLS)
WISH = OutputFormat("json_schema", SCHEMA)


def test_a_tool_is_a_function_and_marks_on_it_mean_nothing():
    """As Chat has it, in the same order."""
    marks = {"cache_control": {"type": "ephemeral"}, "strict": True, "defer_loading": True}
    (plain,) = offered([READ])

    assert offered([{**marks, "type": "custom", **READ}]) == (plain,)
    assert list(plain["function"].items()) == [
        ("name", "read"),
        ("description", "Reads."),
        ("parameters", SCHEMA),
    ]


def test_tools_that_a_server_runs_are_left_out():
    """The model is not told of them, and they can not be chosen."""
    foreign = [{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124"}]

    assert offered([*foreign, READ]) == offered([READ])
    with pytest.raises(BadRequest) as refused:
        structure(offered(foreign), ToolChoice("any"), None, FIELD)
    assert refused.value.param == "tool_choice.type"


@pytest.mark.parametrize(
    ("choice", "wish", "shape", "reads"),
    [
        (None, None, None, True),
        (ToolChoice("auto"), None, None, True),
        (ToolChoice("auto", disable_parallel_tool_use=True), None, OneCall(), True),
        (ToolChoice("none"), None, None, False),
        (ToolChoice("any"), None, CallShape(FUNCTIONS, True), True),
        (ToolChoice("any", None, True), None, CallShape(FUNCTIONS, False), True),
        (ToolChoice("tool", "run"), None, CallShape(FUNCTIONS[1:], False), True),
        (ToolChoice("none"), WISH, JsonShape(SCHEMA, f"{FIELD}.schema"), False),
        (None, WISH, JsonShape(SCHEMA, f"{FIELD}.schema", CallShape(FUNCTIONS, True)), True),
    ],
)
def test_each_choice_has_its_shape(choice, wish, shape, reads):
    """With two tools on offer."""
    found = structure(TOOLS, choice, wish, FIELD)
    assert (found.shape, found.reads_calls) == (shape, reads)


def test_without_tools_nothing_is_read_as_a_call():
    """And a format is just that."""
    assert structure((), None, None, FIELD).reads_calls is False
    assert structure((), None, WISH, FIELD).shape == JsonShape(SCHEMA, f"{FIELD}.schema")


@pytest.mark.parametrize(
    ("choice", "wish", "param"),
    [
        (ToolChoice("required"), None, "tool_choice.type"),
        (ToolChoice("tool", "walk"), None, "tool_choice.name"),
        (ToolChoice("tool"), None, "tool_choice.name"),
        (ToolChoice("any"), WISH, FIELD),
        (None, OutputFormat("json"), f"{FIELD}.type"),
        (None, OutputFormat("json_schema"), f"{FIELD}.schema"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(choice, wish, param):
    """Or what nobody knows."""
    with pytest.raises(BadRequest) as refused:
        structure(TOOLS, choice, wish, FIELD)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        ({}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "a", "input_schema": []}, "input_schema"),
        ({"name": "a", "description": 1}, "description"),
    ],
)
def test_a_tool_that_cannot_be_shown_is_named(tool, field):
    """By its place in the list."""
    with pytest.raises(BadRequest) as refused:
        offered([READ, tool])
    assert refused.value.param == f"tools[1].{field}"
