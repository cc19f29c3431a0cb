"""Responses requests: what is accepted, what it means, and what is refused by name."""

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.chat.messages import normalized
from flashrt.chat.request import CacheHints, SamplingWish
from flashrt.chat.shape import CallShape, JsonShape, OneCall
from flashrt.errors import BadRequest, PreviousResponseNotFound
from flashrt.protocols.chat import read_chat
from flashrt.protocols.responses import ResponsesCall, read_responses
from tests.protocols.conversations import as_chat, as_items, conversations

F = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}
G = {"type": "function", "name": "g"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@attrs.frozen
class Kept:
    """An earlier answer."""

    items: list[dict[str, Any]]
    hints: CacheHints = attrs.field(factory=CacheHints)


@attrs.frozen
class Memory:
    """What a client said before."""

    answers: dict[str, Kept] = attrs.field(factory=dict)

    def answer(self, response_id: str) -> Kept | None:
        return self.answers.get(response_id)

    def item_of(self, item_id: str) -> dict[str, Any] | None:
        items = [item for kept in self.answers.values() for item in kept.items]
        return next((item for item in items if item.get("id") == item_id), None)


NOTHING = Memory()


def read(past: Memory = NOTHING, **fields: Any) -> ResponsesCall:
    return read_responses(json.dumps({"input": "hi", **fields}).encode(), past)


def refusal(past: Memory = NOTHING, **fields: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        read(past, **fields)
    return caught.value


@settings(max_examples=50)
@given(st.data(), conversations(), st.booleans())
def test_a_conversation_is_the_same_one_as_in_chat(data, turns, instructed):
    """Any spelling of real clients: same messages, so same prompt, same replay."""
    instructions = "Be good." if instructed else None
    system = [{"role": "system", "content": instructions}] if instructed else []
    chat = read_chat(json.dumps({"messages": [*system, *as_chat(turns)]}).encode())

    asked = read(input=data.draw(as_items(turns)), instructions=instructions)

    assert normalized(asked.request.messages) == normalized(chat.request.messages)


@settings(max_examples=50)
@given(st.data(), conversations(), st.integers(0, 6))
def test_a_conversation_that_goes_on_from_an_answer_is_the_whole_one(data, turns, cut):
    """The same messages, whether they are sent again or are held here."""
    items = data.draw(as_items(turns))
    past = Memory({"resp_1": Kept(items[:cut])})

    on = read(past, input=items[cut:], previous_response_id="resp_1")

    whole = read(input=items)
    assert on.request.messages == whole.request.messages
    assert on.new == tuple(items[cut:])


def test_a_bare_text_is_a_user_message():
    """And nothing else is wished."""
    asked = read()

    assert asked.request.messages == ({"role": "user", "content": "hi"},)
    assert asked.request.sampling == SamplingWish()
    assert (asked.stream, asked.stores, asked.request.max_tokens) == (False, True, None)


def test_every_known_field_arrives():
    """All fields of the API that are served reach the request."""
    asked = read(
        model="m",
        stream=True,
        store=False,
        max_output_tokens=20,
        max_tokens=10,
        temperature=1,
        top_p=0.5,
        top_k=40,
        seed=-5,
        stop=["a"],
        prompt_cache_key="k",
        cache_salt="s",
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        reasoning={"effort": "low", "summary": "auto"},
        flashrt_session="sess_1",
        flashrt_draft_tokens=3,
        flashrt_return_token_ids=True,
    )

    request = asked.request
    assert (asked.stream, asked.stores, request.model, request.max_tokens) == (True, False, "m", 20)
    assert request.sampling == SamplingWish(temperature=1, top_p=0.5, top_k=40, seed=-5, logprobs=2)
    assert (request.stop, request.draft_tokens, request.return_token_ids) == (("a",), 3, True)
    assert request.template_args == {"enable_thinking": True, "reasoning_effort": "low"}
    assert request.hints == CacheHints("k", "s", session="k", flashrt_session="sess_1")
    assert asked.form.summarizes
    assert not asked.form.seals


def test_what_real_clients_send_beside_it_is_ignored():
    """Fields of Codex, of routers, and of other servers."""
    read(
        client_metadata={"x": 1},
        truncation="auto",
        service_tier="auto",
        safety_identifier="s",
        user="u",
        metadata={"a": "b"},
        text={"verbosity": "low"},
        context_management=[{}],
        max_tool_calls=3,
        reasoning={"context": "auto", "generate_summary": None},
        stream_options={"include_obfuscation": False},
        background=False,
    )


def test_codex_asks_for_a_summary_of_it_all():
    """The same input and one message more, without tools or parallel calls."""
    asked = read(tools=[], parallel_tool_calls=False, tool_choice="auto")

    assert (asked.request.tools, asked.request.shape) == ((), None)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"background": True}, "background", "stream"),
        ({"conversation": "conv_1"}, "conversation", "previous_response_id"),
        ({"prompt": {"id": "p"}}, "prompt", "instructions"),
        ({"input": None}, "input", "required"),
        ({"input": []}, "input", "empty"),
        ({"input": 3}, "input", "expected"),
        ({"input": ["x"]}, "input[0]", "object"),
        ({"input": [{"type": "web_search_call"}]}, "input", "nothing"),
        ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"top_logprobs": 21}, "top_logprobs", "from 0 to 20"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "medium"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "json_schema"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "required"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields, param, words):
    """With the field, and the way out."""
    error = refusal(**fields)

    assert error.param == param
    assert words in error.message


def test_an_answer_that_is_not_held_has_the_apis_own_code():
    """Clients go by it, and then send everything again."""
    error = refusal(previous_response_id="resp_x")

    assert isinstance(error, PreviousResponseNotFound)
    assert error.param == "previous_response_id"
    assert "resp_x" in error.message
    assert "`input`" in error.message


def test_instructions_are_not_inherited_and_session_and_namespace_are():
    """As in the API; so the server sees one conversation, and keeps it where it was (G10)."""
    before = Kept([{"role": "user", "content": "a"}], CacheHints(cache_salt="n", session="s"))
    past = Memory({"resp_1": before})

    silent = read(past, previous_response_id="resp_1", instructions="new")
    named = read(past, previous_response_id="resp_1", prompt_cache_key="mine")

    assert silent.request.messages[0] == {"role": "system", "content": "new"}
    assert len(silent.request.messages) == 3
    assert silent.request.hints == before.hints
    assert named.request.hints == CacheHints("mine", "n", session="mine")


def test_going_on_needs_no_input():
    """The answer goes on in the newest message, as it does in chat."""
    past = Memory({"resp_1": Kept([{"role": "user", "content": "a"}])})

    asked = read(past, previous_response_id="resp_1", input=None)

    assert asked.request.messages == ({"role": "user", "content": "a"},)


def test_references_are_what_they_stand_for():
    """With their type or without; of an answer that is not held, a refusal names the place."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": "so"}
    past = Memory({"resp_1": Kept([message])})
    hello = {"role": "user", "content": "a"}

    for reference in ({"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}):
        asked = read(past, input=[hello, reference, hello])
        assert asked.request.messages[1] == {"role": "assistant", "content": "so"}
        assert asked.new == (hello, message, hello)
    error = refusal(past, input=[hello, {"type": "item_reference", "id": "msg_2"}])
    assert error.param == "input[1].id"
    assert "Send the item itself" in error.message


JSON_WISH = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}}


def test_the_shape_of_an_answer():
    """Formats and choices come to the same shapes as in chat, with their own paths."""
    assert read(text=JSON_WISH).request.shape == JsonShape(SCHEMA, "text.format.schema")
    free = read(text={"format": {"type": "json_object"}}).request.shape
    assert free == JsonShape({"type": "object"}, "text.format")
    assert read(text={"format": {"type": "text"}}).request.shape is None
    assert read(tools=[F], parallel_tool_calls=False).request.shape == OneCall()
    named = read(tools=[F, G], tool_choice={"type": "function", "name": "g"}).request
    assert isinstance(named.shape, CallShape)
    assert [f["name"] for f in named.shape.functions] == ["g"]
    assert len(named.tools) == 2
    error = refusal(tools=[F], tool_choice="required", text=JSON_WISH)
    assert error.param == "text.format"


def test_some_tools_may_be_asked_for_and_all_stay_on_offer():
    """`allowed_tools`: the prompt stays the one before."""
    one = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "g"}],
    }
    asked = read(tools=[F, G], tool_choice=one).request

    assert [tool["function"]["name"] for tool in asked.tools] == ["f", "g"]
    assert isinstance(asked.shape, CallShape)
    assert [f["name"] for f in asked.shape.functions] == ["g"]


def test_tools_are_shown_as_in_chat():
    """The same functions in the same order of fields, whatever the client's own."""
    chat = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}
    turned = {"type": "function", **dict(reversed(chat.items()))}

    (tool,) = read(tools=[turned]).request.tools

    assert tool == {"type": "function", "function": chat}
    assert list(tool["function"]) == list(chat)


def test_tools_that_come_with_items_are_on_offer():
    """Codex adds some in the middle of a conversation."""
    items = [
        {"role": "user", "content": "a"},
        {"type": "additional_tools", "role": "developer", "tools": [G]},
    ]
    assert [t["function"]["name"] for t in read(input=items, tools=[F]).request.tools] == ["f", "g"]
