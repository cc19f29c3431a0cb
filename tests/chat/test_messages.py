"""Messages of every kind become the one shape that templates read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.messages import UNREAD_RESULTS, normalized
from flashrt.errors import BadRequest

TEXT = st.text(max_size=6)
CONTENT = st.one_of(
    st.none(), TEXT, st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}))
)
CALL = st.fixed_dictionaries(
    {
        "function": st.fixed_dictionaries(
            {
                "name": st.just("run"),
                "arguments": st.one_of(
                    st.none(), TEXT, st.sampled_from(['{"a": 1}', "[1]", '{"a": ', {"a": 1}])
                ),
            }
        )
    }
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"])},
    optional={
        "content": CONTENT,
        "reasoning": TEXT,
        "reasoning_content": TEXT,
        "tool_calls": st.lists(CALL, max_size=2),
        "tool_call_id": TEXT,
        "refusal": st.none(),
    },
)


def one(**fields: Any) -> dict[str, Any]:
    """A message in front of which stands a user's, normalised."""
    return normalized([{"role": "user", "content": "x"}, fields])[1]


@given(st.lists(MESSAGE, min_size=1, max_size=6), st.booleans())
def test_normalising_twice_changes_nothing(messages: list[dict[str, Any]], late_system: bool):
    """What came out may go in again; content is always a string, arguments always an object."""
    once = normalized(messages, late_system=late_system)

    assert normalized(once, late_system=late_system) == once
    assert all(isinstance(m["content"], str) for m in once)
    calls = [call for m in once for call in m.get("tool_calls", [])]
    assert all(isinstance(call["function"]["arguments"], dict) for call in calls)


def test_nothing_that_came_in_is_changed():
    """The request's own messages stay as they are."""
    given_messages = [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}]

    normalized(given_messages)

    assert given_messages == [
        {"role": "system", "content": "a"},
        {"role": "system", "content": "b"},
    ]


def test_leading_system_messages_are_joined():
    """Several of them, developer's too, are one system turn."""
    leading = [
        {"role": "system", "content": "a"},
        {"role": "developer", "content": [{"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
    ]

    assert normalized(leading) == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": "c"},
    ]


@pytest.mark.parametrize(("late_system", "role"), [(True, "system"), (False, "user")])
def test_a_late_system_message_stays_in_its_place(late_system: bool, role: str):
    """Moved to the front it would change the start of every later prompt."""
    late = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "developer", "content": "c"},
    ]

    assert normalized(late, late_system=late_system)[2] == {"role": role, "content": "c"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("a", "a"),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"], "abc"),
    ],
)
def test_content_becomes_a_string(content: object, text: str):
    """null, a string or parts, which are joined as templates join them."""
    assert one(role="user", content=content) == {"role": "user", "content": text}


def test_unknown_fields_are_dropped():
    """A template sees nothing that it could trip over."""
    assert one(role="user", content="a", name="Bob", cache_control={}) == {
        "role": "user",
        "content": "a",
    }


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thinking_is_taken_from_either_field(field: str):
    """Clients send back what they know it as."""
    assert one(role="assistant", content="a", **{field: "hm"}) == {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "hm",
    }


def test_a_think_block_in_front_of_the_content_is_thinking():
    """Some clients send the block back as text; it is none of the visible answer."""
    assert one(role="assistant", content="<think>\nhm\n</think>\n\n a</think>") == {
        "role": "assistant",
        "content": " a</think>",
        "reasoning_content": "hm",
    }
    assert one(role="user", content="<think>hm</think>a")["content"] == "<think>hm</think>a"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": {"b": [1, "x"]}}', {"a": {"b": [1, "x"]}}),
        ({"a": 1}, {"a": 1}),
        (None, {}),
        ("", {}),
        (" \n", {}),
        ('{"a": 1', {"arguments": '{"a": 1'}),
        ("[1]", {"arguments": "[1]"}),
        ("[" * 100_000, {"arguments": "[" * 100_000}),
    ],
)
def test_arguments_become_an_object(arguments: object, expected: dict[str, Any]):
    """JSON is parsed; what is none stays readable, since it comes back with every turn."""
    call = {"id": "c1", "function": {"name": "run", "arguments": arguments, "x": 1}}

    assert one(role="assistant", tool_calls=[call])["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "run", "arguments": expected}}
    ]


def test_a_tool_result_keeps_whose_it_is():
    """By id and name, where they are given."""
    result = one(role="tool", tool_call_id="c1", name="run", content=None, is_error=False)

    assert result == {"role": "tool", "content": "", "tool_call_id": "c1", "name": "run"}


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("hi", "messages[1]"),
        ({"content": "x"}, "messages[1].role"),
        ({"role": "wizard", "content": "x"}, "messages[1].role"),
        ({"role": ["user"]}, "messages[1].role"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[1].content[0]"),
        ({"role": "user", "content": ["a", {"type": "text"}]}, "messages[1].content[1]"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[1].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": ["run"]}, "messages[1].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "messages[1].tool_calls"),
        ({"role": "assistant", "function_call": "run"}, "messages[1].function_call"),
    ],
)
def test_what_cannot_be_read_is_named(message: Any, place: str):
    """The error says which message, and which part of it."""
    with pytest.raises(BadRequest) as caught:
        normalized([{"role": "user", "content": "x"}, message])

    assert caught.value.param == place
    assert f"`{place}`" in caught.value.message


def test_no_messages_are_refused():
    """There is nothing to answer."""
    with pytest.raises(BadRequest, match="empty"):
        normalized([])


RESULTS = st.permutations([0, 1, 2])
THREE_CALLS = {
    "role": "assistant",
    "tool_calls": [{"id": f"c{i}", "function": {"name": "run"}} for i in range(3)],
}


@given(RESULTS, RESULTS)
def test_results_stand_in_the_order_of_their_calls(first: list[int], second: list[int]):
    """Whichever came first, so a prompt does not depend on how fast each tool was."""
    turns = [
        message
        for order in (first, second)
        for message in (
            {"role": "user", "content": "x"},
            THREE_CALLS,
            *({"role": "tool", "tool_call_id": f"c{i}", "content": f"{i}"} for i in order),
        )
    ]

    contents = [m["content"] for m in normalized(turns) if m["role"] == "tool"]

    assert contents == ["0", "1", "2"] * 2


@pytest.mark.parametrize("ids", [["c1", "c0", None], ["c1", "c1", "c0"], ["c1", "c0", "other"]])
def test_results_stay_where_it_is_not_clear_whose_they_are(ids: list[str | None]):
    """Two of one call, one of none, one of an unknown call."""
    results = [
        {"role": "tool", "tool_call_id": given, "content": f"{i}"} for i, given in enumerate(ids)
    ]

    found = normalized([{"role": "user", "content": "x"}, THREE_CALLS, *results])

    assert [m["content"] for m in found[2:]] == ["0", "1", "2"]


def test_an_assistants_parts_are_text_and_thinking():
    """As clients keep them that speak several protocols."""
    parts = [
        {"type": "thinking", "thinking": "h", "signature": ""},
        {"type": "reasoning", "text": "m"},
        {"type": "text", "text": "a"},
        {"type": "refusal", "refusal": "b"},
    ]

    assert one(role="assistant", content=parts) == {
        "role": "assistant",
        "content": "ab",
        "reasoning_content": "hm",
    }


def test_a_function_call_of_the_old_spelling_is_a_call():
    """There was only one, and it had no id."""
    found = one(role="assistant", function_call={"name": "run", "arguments": '{"a": 1}'})

    assert found["tool_calls"] == [
        {"type": "function", "function": {"name": "run", "arguments": {"a": 1}}}
    ]


def test_users_may_follow_each_other():
    """Each stays a message of its own; joining them would change the prompt in front."""
    users = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
    ]

    assert [m["content"] for m in normalized(users)] == ["a", "b"]


def test_an_assistant_may_have_only_thinking():
    """Its answer was cut, or it had none."""
    assert one(role="assistant", reasoning="hm") == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
    }


@pytest.mark.parametrize("kind", UNREAD_RESULTS)
def test_a_result_that_is_no_text_does_not_end_a_session(kind: str):
    """It is sent again with every turn; the model is told that there is something."""
    parts = [
        {"type": "text", "text": "see "},
        {"type": kind, kind: {}},
        {"type": "text", "text": "!"},
    ]

    assert one(role="tool", content=parts)["content"] == f"see {UNREAD_RESULTS[kind]}!"
    with pytest.raises(BadRequest):
        one(role="tool", content=[{"type": "hologram"}])


@pytest.mark.parametrize("kind", ["image_url", "input_image", "image", "input_audio", "file"])
def test_what_is_no_text_is_refused_with_a_reason(kind: str):
    """The client learns which part, and that this model reads text only."""
    part = {"type": kind, kind: {"url": "data:image/png;base64,AA=="}}

    for role in ("user", "system"):
        with pytest.raises(BadRequest, match="reads text only") as caught:
            one(role=role, content=[{"type": "text", "text": "see"}, part])
        assert caught.value.param == "messages[1].content[1]"
