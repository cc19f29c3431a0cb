"""Chat requests: what is accepted, and what is refused by name."""

import json

import pytest

from flashrt.chat.request import SamplingWish
from flashrt.chat.shape import JsonShape
from flashrt.errors import BadRequest
from flashrt.protocols.chat import read_chat
from flashrt.protocols.fields import Call
from tests.protocols.vocabulary import NO_PINS, PIN_WISHES

HELLO = [{"role": "user", "content": "hi"}]


def read(**fields: object) -> Call:
    return read_chat(json.dumps({"messages": HELLO, **fields}).encode())


def refusal(**fields: object) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        read(**fields)
    return caught.value


def test_a_bare_request_wishes_nothing():
    """Only messages: no stream, no limits, the model's own sampling."""
    asked = read()

    assert asked.request.messages == ({"role": "user", "content": "hi"},)
    assert asked.request.sampling == SamplingWish()
    assert (asked.stream, asked.include_usage, asked.request.max_tokens) == (False, False, None)


def test_every_known_field_arrives():
    """All fields of the API that are served reach the request."""
    asked = read(
        model="m",
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=10,
        max_completion_tokens=20,
        stop=["a", "b"],
        seed=-5,
        temperature=1,
        top_p=0.5,
        top_k=40,
        min_p=0.1,
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=1.1,
        logit_bias={"7": -100, "8": 1.5},
        chat_template_kwargs={"preserve": 1},
        enable_thinking=False,
        prompt_cache_key="k",
        cache_salt="s",
        flashrt_return_token_ids=True,
        flashrt_draft_tokens=3,
        flashrt_pin_prefix=640,
    )

    request = asked.request
    assert (asked.stream, asked.include_usage, request.model) == (True, True, "m")
    assert request.max_tokens == 20
    assert request.stop == ("a", "b")
    assert request.sampling == SamplingWish(
        temperature=1,
        top_k=40,
        top_p=0.5,
        min_p=0.1,
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=1.1,
        logit_bias={7: -100, 8: 1.5},
        seed=-5,
    )
    assert request.template_args == {"preserve": 1, "enable_thinking": False}
    assert (request.hints.prompt_cache_key, request.hints.cache_salt) == ("k", "s")
    assert request.return_token_ids
    assert request.draft_tokens == 3
    assert request.pin_prefix == 640


@pytest.mark.parametrize("wish", PIN_WISHES)
def test_a_wish_to_pin_arrives_as_it_is(wish):
    """True is the system turn and 1 is one token; False and 0 let go, null wishes nothing."""
    arrived = read(flashrt_pin_prefix=wish).request.pin_prefix

    assert (arrived, type(arrived)) == (wish, type(wish))


@pytest.mark.parametrize("wish", NO_PINS, ids=lambda wish: wish[:9])
def test_what_is_no_pin_is_refused_by_name(wish):
    """A length below 0, a fraction, a text, and a number that nobody can read."""
    body = f'{{"messages": {json.dumps(HELLO)}, "flashrt_pin_prefix": {wish}}}'
    with pytest.raises(BadRequest, match="`flashrt_pin_prefix`") as caught:
        read_chat(body.encode())

    assert caught.value.param == "flashrt_pin_prefix"


def test_unknown_fields_are_ignored():
    """Clients send fields of other servers at every level; none of them is an error."""
    asked = read(
        store=False,
        metadata={"a": 1},
        reasoning_effort="high",
        safeguards=[1],
        messages=[{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}], "y": 2}],
    )

    assert asked.request.messages is not None
    assert len(asked.request.messages) == 1


def test_tools_stay_as_the_client_wrote_them():
    """The template shows the whole function, so nothing of it is dropped or moved."""
    function = {"name": "f", "strict": False, "parameters": {"z": 1, "a": 2}, "description": "d"}

    (tool,) = read(tools=[{"type": "function", "function": function}]).request.tools

    assert tool == {"type": "function", "function": function}
    assert list(tool["function"]) == list(function)


def test_tool_choice_none_shows_the_tools_and_reads_no_calls():
    """The prompt stays the one of the turns before, so its prefix is kept."""
    tools = [{"type": "function", "function": {"name": "f"}}]

    none, auto = (read(tools=tools, tool_choice=choice).request for choice in ("none", "auto"))
    assert none.tools == auto.tools
    assert (none.reads_calls, auto.reads_calls) == (False, True)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_a_wish_for_logprobs_arrives(fields, wanted):
    """With none of the likeliest it is still a wish."""
    assert read(**fields).request.sampling.logprobs == wanted


def test_structure_and_thinking_arrive():
    """What their own modules make of the fields is in the request."""
    request = read(
        response_format={"type": "json_object"},
        reasoning_effort="low",
        chat_template_kwargs={"enable_thinking": False},
    ).request

    assert request.shape == JsonShape({"type": "object"}, "response_format")
    assert request.thinking_tokens == 2048
    assert request.template_args == {"enable_thinking": False, "reasoning_effort": "low"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"stream": "true"}, "stream"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1e400}, None),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"n": 2}, "n"),
        ({"logprobs": 1}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 3, "logprobs": False}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields, param):
    """A wrong value is a 400 whose `param` is its path; no wish is ignored."""
    refused = refusal(**fields)

    assert refused.param == param
    assert refused.status == 400
    if param is not None:
        assert f"`{param}`" in refused.message


def test_fields_that_ask_for_nothing_special_are_accepted():
    """Clients spell defaults out."""
    read(
        n=1,
        logprobs=False,
        top_logprobs=0,
        response_format={"type": "text"},
        tool_choice="auto",
        modalities=["text"],
        stream=None,
        stop=None,
        top_k=-1,
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"not json",
        b'{"messages": "\xff"}',
        b"\x1f\x8b\x08\x00",
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [], "temperature": NaN}',
        b'{"x": ' + b"[" * 200_000,
        b'{"messages": ' + b"[" * 200_000,
        b'{"seed": ' + b"9" * 5000 + b"}",
        b"\xef\xbb\xbf{}",
    ],
)
def test_a_body_that_is_no_request_is_a_bad_request(body):
    """Not JSON, not an object, not UTF-8, too deep: always 400, never a crash."""
    with pytest.raises(BadRequest):
        read_chat(body)


def test_a_wrong_type_names_field_type_and_what_is_allowed():
    """The message tells all three."""
    assert refusal(stream="true").message == "`stream`: expected `bool | null`, got `str`."


@pytest.mark.parametrize(
    ("fields", "continues"),
    [
        ({}, True),
        ({"continue_final_message": True, "add_generation_prompt": False}, True),
        ({"continue_final_message": False}, False),
        ({"add_generation_prompt": True}, True),
    ],
)
def test_a_last_message_of_the_assistants_is_continued_unless_the_client_says_no(fields, continues):
    """Clients that send one mean it as the beginning of the answer."""
    assert read(**fields).request.continues_last is continues


def test_a_prompt_without_an_answer_is_refused_by_name():
    """`add_generation_prompt` false asks for nothing."""
    with pytest.raises(BadRequest) as refused:
        read(add_generation_prompt=False)
    assert refused.value.param == "add_generation_prompt"
