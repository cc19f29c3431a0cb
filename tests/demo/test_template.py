"""The bundled chat template: the family's wire format, stable under growth."""

import json

import pytest
from jinja2.exceptions import TemplateError

from flashrt.chat.template import Template
from flashrt.demo import DEMO_PATH
from flashrt.errors import BadRequest
from tests.demo.bundled import rendered

USER = {"role": "user", "content": "Hi"}
CALL = {
    "role": "assistant",
    "content": "Let me look.",
    "reasoning_content": "A file.",
    "tool_calls": [
        {
            "type": "function",
            "function": {
                "name": "read",
                "arguments": {"path": "a & b", "lines": [1, 2], "all": True},
            },
        },
        {"type": "function", "function": {"name": "now", "arguments": {}}},
    ],
}
RESULTS = [{"role": "tool", "content": "one"}, {"role": "tool", "content": "two"}]


def test_a_chat_is_rendered_in_the_wire_format():
    """Turns, thinking, calls with raw and JSON values, and joined results."""
    assert rendered(
        {"role": "system", "content": " Be brief. "}, USER, CALL, *RESULTS, ask=True
    ) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nA file.\n</think>\n\nLet me look.\n\n"
        "<tool_call>\n<function=read>\n<parameter=path>\na & b\n</parameter>\n"
        "<parameter=lines>\n[1, 2]\n</parameter>\n<parameter=all>\ntrue\n</parameter>\n"
        "</function>\n</tool_call>\n"
        "<tool_call>\n<function=now>\n</function>\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\none\n</tool_response>\n"
        "<tool_response>\ntwo\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )


def test_tools_stand_first_and_the_system_text_after_them():
    """Schema and frame of each; the first system message joins their turn."""
    empty, schema = {}, {"type": "object", "properties": {"x": {"type": "string"}, "y": {}}}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": parameters}}
        for name, parameters in (("a", empty), ("b", schema))
    ]
    alone = rendered(USER, tools=tools)
    joined = rendered({"role": "system", "content": "Be brief."}, USER, tools=tools)
    head = alone.index("<|im_end|>")
    assert joined == alone[:head] + "\n\nBe brief." + alone[head:]
    listed = alone.split("<tools>\n")[1].split("</tools>")[0].splitlines()
    assert [json.loads(line) for line in listed if line[0] == "{"] == tools
    frames = "\n".join(line for line in listed if line[0] == "<")
    assert frames == (
        "<function=a>\n</function>\n<function=b>\n<parameter=x>\n<parameter=y>\n</function>"
    )
    assert alone.count("<|im_start|>") == 2


def test_thinking_is_opened_or_closed_by_the_prompt():
    """On by default; switched off, the block is there and empty."""
    assert rendered(USER, ask=True).endswith("assistant\n<think>\n")
    assert rendered(USER, ask=True, enable_thinking=True).endswith("assistant\n<think>\n")
    off = rendered(USER, ask=True, enable_thinking=False)
    assert off.endswith("assistant\n<think>\n\n</think>\n\n")
    # An answer without thoughts is rendered as it was generated: the prompt is its prefix.
    assert rendered(USER, {"role": "assistant", "content": "Yes"}).startswith(off + "Yes")


def test_a_conversation_that_grows_keeps_its_prefix():
    """Whatever comes next, what was rendered before stays; thinking included."""
    talk = [USER, CALL, *RESULTS, {"role": "assistant", "content": "Done"}, USER, CALL]
    late = [{"role": "system", "content": "Late"}, USER]
    whole = rendered(*talk, *late)
    for n in range(1, len(talk + late)):
        part = rendered(*(talk + late)[:n])
        if (talk + late)[n - 1 : n + 1] == RESULTS:  # results that follow join the open turn
            part = part.removesuffix("<|im_end|>\n")
        assert whole.startswith(part)


def test_thinking_before_the_last_user_turn_can_be_dropped():
    """`preserve_thinking: false` drops it there, and only there."""
    text = rendered(USER, CALL, USER, CALL, *RESULTS, preserve_thinking=False)
    first, second = text.split("<|im_start|>assistant\n")[1:]
    assert first.startswith("Let me look.")
    assert second.startswith("<think>\nA file.\n</think>\n\nLet me look.")


def test_content_may_be_a_list_of_text_parts():
    """They are joined; content may also be missing where there are calls."""
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    assert rendered({"role": "user", "content": parts}) == rendered(USER)
    for silent in ({**CALL, "content": None}, {**CALL, "content": ""}):
        assert "</think>\n\n<tool_call>\n<function=read>" in rendered(USER, silent)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "wizard", "content": "x"}, "unknown role wizard"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "text only"),
        ({"role": "user", "content": 5}, "must be text"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            "must be a mapping",
        ),
    ],
)
def test_what_cannot_be_rendered_raises(message, words):
    """With a sentence, not with a wrong prompt."""
    with pytest.raises(TemplateError, match=words):
        rendered(USER, message)


def test_the_server_renders_what_transformers_renders():
    """The template needs nothing but what both sandboxes give it; no messages is an error in it."""
    template = Template.load(DEMO_PATH)
    talk = [{"role": "system", "content": "<b>é</b>"}, USER, CALL, *RESULTS]
    tools = [{"type": "function", "function": {"name": "é", "description": "a 'b' <c> & d"}}]
    values = {"messages": talk, "tools": tools, "add_generation_prompt": True}
    assert template.render(values) == rendered(*talk, tools=tools, ask=True)
    with pytest.raises(BadRequest, match="at least one message"):
        template.render({"messages": []})
