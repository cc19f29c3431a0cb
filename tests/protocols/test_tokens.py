"""`/tokenize` and `/detokenize`: what they take."""

import json

import pytest

from flashrt.errors import BadRequest
from flashrt.protocols.tokens import read_detokenize, read_tokenize, text_body, tokens_body
from tests.protocols.test_models import Card

HI = [{"role": "user", "content": "hi"}]


def tokenize(**fields):
    return read_tokenize(json.dumps(fields).encode())


def test_a_text_or_messages_are_a_prompt():
    """Messages with tools and thinking, as a chat request has them."""
    assert tokenize(prompt="a", model="m").text == "a"
    tools = [{"type": "function", "function": {"name": "f"}}]
    asked = tokenize(messages=HI, tools=tools, enable_thinking=False, add_generation_prompt=True)
    assert asked.messages == tuple(HI)
    assert asked.tools == tuple(tools)
    assert asked.template_args == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": HI}, "prompt"),
        ({"prompt": [1]}, "prompt"),
        ({"messages": HI, "add_generation_prompt": False}, "add_generation_prompt"),
        ({"messages": HI, "tools": [{"type": "x"}]}, "tools[0]"),
    ],
)
def test_what_is_no_prompt_is_refused_by_name(fields, param):
    """One of the two, and nothing that would be ignored."""
    with pytest.raises(BadRequest) as refused:
        tokenize(**fields)
    assert refused.value.param == param


@pytest.mark.parametrize("body", [b"{}", b'{"tokens": [-1]}', b'{"tokens": ["a"]}'])
def test_what_are_no_ids_is_refused(body):
    """Whole numbers from 0 on."""
    with pytest.raises(BadRequest):
        read_detokenize(body)


def test_answers_have_the_fields_that_clients_of_other_servers_read():
    """Ids with their count and the window; text as `prompt`."""
    assert read_detokenize(b'{"tokens": [1, 2]}') == [1, 2]
    answer = json.loads(tokens_body((5, 6), Card()))
    assert answer == {"tokens": [5, 6], "count": 2, "max_model_len": 4096}
    assert json.loads(text_body("a")) == {"prompt": "a"}
