"""Answers that go on inside the last message."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.continuing import open_field, without_empty_end
from flashrt.chat.marked import OPEN
from flashrt.chat.messages import normalized
from flashrt.chat.render import Renderer
from flashrt.chat.request import AgentRequest
from flashrt.chat.template import Template
from flashrt.errors import BadRequest
from tests.chat.vocabulary import TEMPLATE, template, tokenizer

RENDERER = Renderer(tokenizer(), template())
ASKED = {"role": "user", "content": "Go"}
START = "<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n<think>\n"
CALL = {"id": "c", "function": {"name": "run", "arguments": "{}"}}


def prompt(*messages: dict[str, Any], **options: Any) -> str:
    """The text of the prompt that these messages make."""
    return tokenizer().decode(RENDERER.render(AgentRequest("m", messages, **options)).ids)


def said(content: Any = None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


@pytest.mark.parametrize("text", ["I think", "I think ", "Line\n\n", "x <|im_end|> y", "\ue000"])
def test_a_prompt_ends_inside_an_open_message(text: str):
    """With its last letter, blanks too; no turn is ended behind it, and none is begun."""
    assert prompt(ASKED, said(text)) == f"{START}\n</think>\n\n{text}"
    assert prompt(ASKED, said(text, reasoning="hm")) == f"{START}hm\n</think>\n\n{text}"


@given(st.text("ab \n" + OPEN, max_size=8))
def test_any_text_may_be_continued(text: str):
    """Whatever it ends with; in front, templates strip it."""
    shown = prompt(ASKED, said(f"x{text}"))

    assert shown == f"{START}\n</think>\n\nx{text}"


def test_a_message_with_only_thinking_is_continued_in_it():
    """The answer starts inside the block."""
    request = AgentRequest("m", (ASKED, said("", reasoning_content="hm, ")))
    rendered = RENDERER.render(request)

    assert tokenizer().decode(rendered.ids) == f"{START}hm, "
    assert rendered.opens_thinking
    assert not RENDERER.render(AgentRequest("m", (ASKED, said("a")))).opens_thinking


@pytest.mark.parametrize("empty", [said(), said(""), said([]), said(" \n", reasoning="")])
def test_an_empty_message_at_the_end_is_as_none(empty: dict[str, Any]):
    """Clients leave them behind after a broken stream."""
    assert prompt(ASKED, empty) == prompt(ASKED, empty, empty) == prompt(ASKED) == START


def test_behind_calls_a_new_message_begins():
    """Nobody can go on inside a call."""
    assert prompt(ASKED, said("a", tool_calls=[CALL])).endswith("<|im_start|>assistant\n<think>\n")


def test_it_can_be_switched_off():
    """Then the message is a whole turn, and the answer another."""
    shown = prompt(ASKED, said("a"), continues_last=False)

    assert shown.endswith("a<|im_end|>\n<|im_start|>assistant\n<think>\n")


def test_a_continued_answer_has_the_prompt_that_led_to_it():
    """What stood in front of the message stays, so that what is cached still fits."""
    assert prompt(ASKED, said("a", reasoning="hm")).startswith(START)
    assert prompt(ASKED, said("", reasoning="hm")) == f"{prompt(ASKED)}hm"


def test_the_field_that_is_open_is_the_last_that_has_text():
    """Nothing is open behind a user or a result."""
    cases = [
        ([ASKED], None),
        ([ASKED, said("a")], "content"),
        ([ASKED, said("", reasoning="b")], "reasoning_content"),
        ([ASKED, said("a", tool_calls=[CALL])], None),
        ([ASKED, said("", tool_calls=[CALL]), {"role": "tool", "content": "x"}], None),
    ]
    for messages, field in cases:
        assert open_field(normalized(messages)) == field


def test_a_lone_message_is_kept():
    """An empty prompt would hide what is wrong with it."""
    assert without_empty_end(normalized([said("")])) == [said("")]


def test_a_template_that_hides_the_message_is_a_bad_request():
    """Which says what to do."""
    hiding = TEMPLATE.replace("{{- content }}", "{{- content[:0] }}")
    renderer = Renderer(tokenizer(), Template(hiding, tokenizer().control))

    with pytest.raises(BadRequest, match="go on from there") as caught:
        renderer.render(AgentRequest("m", (ASKED, said("a"))))
    assert caught.value.param == "messages[1].content"
