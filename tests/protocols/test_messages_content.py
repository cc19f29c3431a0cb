"""A conversation in blocks is the one that Chat says, however its blocks are cut and marked."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.messages import IMAGE, normalized
from flashrt.errors import BadRequest
from flashrt.protocols.chat import read_chat
from flashrt.protocols.messages import read_messages
from flashrt.protocols.messages_content import EMPTY_FAILURE, conversation
from tests.chat.foreign import renderer
from tests.protocols.messages_talks import BILLING, Spelling, Talk, chat, messages, talks

USE = {"type": "tool_use", "id": "c1", "name": "run", "input": {"n": 1}}


def ids(request) -> tuple[int, ...]:
    return renderer("demo").render(request).ids


def text(value: str) -> dict:
    return {"type": "text", "text": value}


def told(*blocks: dict, role: str = "user") -> list[dict]:
    """What one message of these blocks becomes."""
    return list(conversation(None, [{"role": role, "content": list(blocks)}]))


@given(talks(), st.data())
def test_chat_and_messages_render_to_the_same_ids(talk: Talk, data):
    """Whatever is marked for a cache, cut in parts, shuffled among results, or billed."""
    as_chat = read_chat(msgspec.json.encode(chat(talk))).request
    as_messages = read_messages(msgspec.json.encode(messages(talk, Spelling(data.draw)))).request

    assert normalized(as_messages.messages) == normalized(as_chat.messages)
    assert as_messages.tools == as_chat.tools
    assert ids(as_messages) == ids(as_chat)


@pytest.mark.parametrize("rest", ["You are there.", "", "Two\n\nparagraphs"])
def test_a_billing_line_leaves_no_trace_in_front_and_stays_everywhere_else(rest):
    """As a block of its own or before a text; a user who quotes it is not cut."""
    asked = [{"role": "user", "content": BILLING}]
    plain = conversation([text(rest)], asked)

    assert conversation([text(BILLING), text(rest)], asked) == plain
    assert conversation([text(f"{BILLING}\n{rest}")], asked) == plain
    assert conversation(f"{BILLING}\n{rest}", asked) == plain == conversation(rest, asked)
    assert plain[-1]["content"] == BILLING
    quoted = conversation([text("a"), text(BILLING)], asked)
    assert quoted[1] == {"role": "system", "content": BILLING}


def test_a_late_system_message_stays_where_it_is():
    """As a list of one part and as a string."""
    before, late = {"role": "user", "content": "a"}, {"role": "system", "content": "b"}
    listed = {"role": "system", "content": [text("b")]}

    assert conversation("s", [before, late]) == conversation("s", [before, listed])
    assert conversation("s", [before, late])[1:] == (before, late)


def test_results_come_before_the_text_behind_them_and_text_between_stays():
    """Each result is a message of its own."""
    first = {"type": "tool_result", "tool_use_id": "c1", "content": [text("x"), text("y")]}
    second = {"type": "tool_result", "tool_use_id": "c2"}

    assert told(first, second, text("then")) == [
        {"role": "tool", "tool_call_id": "c1", "content": "xy"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {"role": "user", "content": "then"},
    ]
    assert [m["content"] for m in told(first, text("mid"), second, text(""))] == ["xy", "mid", ""]


def test_a_failure_that_says_nothing_is_told():
    """An empty result would look like a success."""
    failed = {"type": "tool_result", "tool_use_id": "c1", "is_error": True}

    assert told(failed)[0]["content"] == EMPTY_FAILURE
    assert told({**failed, "content": "why"})[0]["content"] == "why"
    assert told({**failed, "is_error": False})[0]["content"] == ""


def test_an_answer_of_blocks_is_one_message():
    """Thinking, text and calls; blocks of another server's tools are left out."""
    thought = {"type": "thinking", "thinking": "Hm", "signature": ""}
    foreign = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    blocks = [thought, text("a"), foreign, {"type": "redacted_thinking", "data": "x"}, USE]

    assert told(*blocks, role="assistant") == [
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "Hm",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "run", "arguments": {"n": 1}},
                }
            ],
        }
    ]


def test_what_a_search_for_tools_found_is_told_by_name():
    """Some clients answer their own search with references."""
    found = [{"type": "tool_reference", "tool_name": name} for name in ("read", "run")]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": found}

    assert told(result)[0]["content"] == "read\nrun\n"


@pytest.mark.parametrize("content", [None, "", []])
def test_a_message_without_content_is_an_empty_one(content):
    """Of any role."""
    for role in ("user", "assistant", "system"):
        said = conversation(None, [{"role": role, "content": content}])
        assert said == ({"role": role, "content": ""},)


PICTURE = {"type": "image", "source": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1"}


def test_a_result_with_a_picture_is_read_all_the_same():
    """The model is told of it; a refusal would end the session."""
    message = {"role": "user", "content": [{**RESULT, "content": [text("see "), PICTURE]}]}

    assert conversation(None, [message])[0]["content"] == f"see {IMAGE}"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({}, "messages[0].role"),
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "user", "content": [text("a"), PICTURE]}, "messages[0].content[1]"),
        ({"role": "user", "content": [{"type": "document"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [USE]}, "messages[0].content[0]"),
        ({"role": "user", "content": [7]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "system", "content": [RESULT]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": [PICTURE]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": [RESULT]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": [{**USE, "name": ""}]}, "messages[0].content[0].name"),
        ({"role": "assistant", "content": [{**USE, "id": None}]}, "messages[0].content[0].id"),
        (
            {"role": "user", "content": [{"type": "tool_result"}]},
            "messages[0].content[0].tool_use_id",
        ),
        ({"role": "user", "content": [{**RESULT, "content": 3}]}, "messages[0].content[0].content"),
        (
            {"role": "user", "content": [{**RESULT, "content": [text("a"), {"type": "what"}]}]},
            "messages[0].content[0].content[1]",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_path(message, param):
    """And the path is in the words too."""
    with pytest.raises(BadRequest) as refused:
        conversation(None, [message])
    assert refused.value.param == param
    assert f"`{param}`" in refused.value.message


def test_a_picture_in_the_system_text_is_refused_by_its_path():
    """As anywhere."""
    with pytest.raises(BadRequest) as refused:
        conversation([text("a"), PICTURE], [])
    assert refused.value.param == "system[1]"
