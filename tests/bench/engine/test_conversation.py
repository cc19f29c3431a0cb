"""The agent's side of a turn."""

import json

import pytest

from flashrt.bench.engine.conversation import Conversation, NoCall, read_answer

RECORD = {"cached_tokens": 3}
PIECES = [
    {"role": "assistant", "content": ""},
    {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "read_file", "arguments": ""}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '{"path": '}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '"README.md"}'}}]},
]


def stream(reason: str) -> bytes:
    """An answer as a server sends it."""
    events = [{"choices": [{"delta": piece, "finish_reason": None}]} for piece in PIECES]
    events += [
        {"choices": [{"delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}, "flashrt": RECORD},
    ]
    lines = [f"data: {json.dumps(event)}\n" for event in events]
    return "\n".join([": hello\n", *lines, "data: [DONE]\n"]).encode()


def test_a_call_is_put_together_from_its_pieces():
    """With the figures of its answer."""
    answer = read_answer(stream("tool_calls"))

    assert answer.call["id"] == "c1"
    assert answer.call["function"] == {"name": "read_file", "arguments": '{"path": "README.md"}'}
    assert (answer.prompt_tokens, answer.completion_tokens) == (9, 4)
    assert answer.record == RECORD


def test_what_is_no_call_is_said():
    """A time of something else would be no turn's."""
    with pytest.raises(NoCall, match="ended by 'length'"):
        read_answer(stream("length"))
    with pytest.raises(NoCall, match="the server answered"):
        read_answer(b'data: {"error": {"message": "no"}}\n\n')


def test_a_conversation_grows_by_a_call_and_its_result():
    """The request has all that was said before, and asks for a call."""
    conversation = Conversation.begun(lines=3)
    before = conversation.messages[0]

    conversation.goes_on(read_answer(stream("tool_calls")), turn=1, lines=2)

    sent = json.loads(conversation.body())
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool"]
    assert sent["messages"][0] == before
    assert sent["messages"][1]["tool_calls"][0]["id"] == sent["messages"][2]["tool_call_id"] == "c1"
    assert sent["tool_choice"] == "required"
    assert sent["messages"][2]["content"].count("render") == 2
