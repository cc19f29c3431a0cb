"""Messages requests: every field that is read, and every one that is not."""

from typing import Any

import msgspec
import pytest

from flashrt.chat.request import AgentRequest
from flashrt.chat.shape import JsonShape
from flashrt.errors import BadRequest
from flashrt.protocols.fields import Call
from flashrt.protocols.messages import count_body, read_messages
from tests.protocols.vocabulary import NO_PINS, PIN_WISHES

HELLO = {"messages": [{"role": "user", "content": "hi"}]}


def read(**fields: Any) -> Call:
    return read_messages(msgspec.json.encode({**HELLO, **fields}))


def request(**fields: Any) -> AgentRequest:
    return read(**fields).request


def test_the_least_request_is_served():
    """Also without the limit that the API asks for: up to the window."""
    asked = request()
    assert asked.messages == ({"role": "user", "content": "hi"},)
    assert (asked.max_tokens, asked.stop, asked.tools) == (None, (), ())
    assert asked.continues_last
    assert read().stream is False


def test_sampling_stops_and_our_own_fields_are_read():
    """As in Chat."""
    asked = request(
        max_tokens=32_000,
        temperature=1,
        top_k=5,
        top_p=0.5,
        seed=7,
        min_p=0.1,
        stop_sequences=["a", "b"],
        cache_salt="s",
        prompt_cache_key="k",
        flashrt_session="sess_1",
        flashrt_draft_tokens=3,
        flashrt_return_token_ids=True,
    )
    sampling = asked.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (1, 5, 0.5)
    assert (sampling.seed, sampling.min_p) == (7, 0.1)
    assert (asked.max_tokens, asked.stop) == (32_000, ("a", "b"))
    assert (asked.draft_tokens, asked.return_token_ids) == (3, True)
    hints = asked.hints
    assert (hints.cache_salt, hints.prompt_cache_key, hints.session) == ("s", "k", "k")
    assert hints.flashrt_session == "sess_1"


def test_the_session_is_in_the_users_name():
    """As one client writes it: JSON inside of JSON."""
    user = '{"device_id":"d","session_id":"s-1"}'
    assert request(metadata={"user_id": user}).hints.session == "s-1"


def test_what_real_clients_send_beside_changes_nothing():
    """Claude Code, Qwen Code, pi and OpenCode."""
    plain = request()
    extra = {
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "safeguards": [{"a": 1}],
        "service_tier": "auto",
        "container": "c",
        "mcp_servers": [{"url": "x"}],
        "cache_control": {"type": "ephemeral"},
        "metadata": {"user_id": "someone"},
        "stop": 7,
        "n": "many",
    }
    assert request(**extra) == plain


@pytest.mark.parametrize("field", ["output_format", "output_config"])
def test_an_answers_format_is_read_from_either_field(field):
    """The newer one has it one level deeper."""
    wish = {"type": "json_schema", "schema": {"type": "object"}}
    given = wish if field == "output_format" else {"format": wish, "effort": "high"}
    where = "output_format" if field == "output_format" else "output_config.format"
    assert request(**{field: given}).shape == JsonShape({"type": "object"}, f"{where}.schema")


def test_thinking_is_off_unless_asked_for():
    """This is what requests for a title rely on."""
    assert request().template_args == {"enable_thinking": False}
    asked = request(thinking={"type": "enabled", "budget_tokens": 1024})
    assert (asked.template_args, asked.thinking_tokens) == ({"enable_thinking": True}, 1024)
    adaptive = request(thinking={"type": "adaptive"}, output_config={"effort": "medium"})
    assert adaptive.thinking_tokens == 8192


@pytest.mark.parametrize("display", [None, "summarized", "updates", "omitted"])
def test_thinking_is_shown_unless_it_is_to_be_omitted(display):
    """In any words."""
    config = {"type": "adaptive", "display": display}
    assert read(thinking=config).shows_thinking is (display != "omitted")


@pytest.mark.parametrize("wish", PIN_WISHES)
def test_every_wish_for_a_pin_is_read(wish):
    """As in Chat."""
    assert request(flashrt_pin_prefix=wish).pin_prefix == wish


@pytest.mark.parametrize("wish", NO_PINS)
def test_no_other_pin_is_read(wish):
    """As in Chat."""
    body = b'{"messages":[{"role":"user"}],"flashrt_pin_prefix":%s}' % wish.encode()
    with pytest.raises(BadRequest):
        read_messages(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": ["a"]}, "messages[0]"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": ["a"] * 17}, "stop_sequences"),
        ({"stop_sequences": "a"}, "stop_sequences"),
        ({"stream": "true"}, "stream"),
        ({"system": 7}, "system"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"tools": [{"name": ""}]}, "tools[0].name"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "tool_choice.type"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": "9"}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "none"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema"),
    ],
)
def test_a_wrong_value_is_refused_by_the_path_of_its_field(fields, param):
    """Never ignored, and never another field's name."""
    with pytest.raises(BadRequest) as refused:
        read(**fields)
    assert refused.value.param == param
    assert f"`{param}`" in refused.value.message


def test_a_count_is_one_number():
    """In the API's word."""
    assert msgspec.json.decode(count_body(7)) == {"input_tokens": 7}
