"""How answers end: every shorter answer begins the longer one, and says truly why it ended."""

import pytest

from flashrt.demo import DEMO_PATH
from flashrt.engine.hybrid import HybridEngine
from tests.http.vocabulary import sse
from tests.protocols.vocabulary import joined_message
from tests.scripted import ScriptedEngine
from tests.whole.server import ENDLESS, VOICE, chat_body, running_server

CHAT = "/v1/chat/completions"
TOOL = {"name": "bash", "parameters": {"properties": {"command": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": TOOL}]


async def cut_at(server, most, **wish):
    """The streamed and the buffered message of at most so many tokens."""
    body = chat_body("go", **{**wish, "max_tokens": most})
    whole = (await server.http.post(CHAT, json=body)).json()
    *chunks, done = sse((await server.http.post(CHAT, json={**body, "stream": True})).text)
    assert done == "[DONE]"
    (choice,) = whole["choices"]
    message = joined_message(chunks)
    assert message["finish_reason"] == choice["finish_reason"]
    assert message["content"] == (choice["message"]["content"] or "")
    assert whole["flashrt"]["completion_token_ids"] == chunks[-1]["flashrt"]["completion_token_ids"]
    assert whole["usage"]["completion_tokens"] <= most
    return message, choice


@pytest.mark.parametrize("burst", [1, 4])
async def test_an_answer_with_a_call_swept_over_its_length(burst):
    """A stream shows a beginning of the call; a body shows it once it is whole, and then only the
    reason is `tool_calls`."""
    async with running_server(ScriptedEngine(VOICE.tokenizer, burst_max=burst)) as server:
        last, _ = await cut_at(server, 500, tools=TOOLS)
        (call,) = last["tool_calls"]
        arguments = call["function"]["arguments"]
        reasons = []
        for most in range(1, 60):
            message, choice = await cut_at(server, most, tools=TOOLS)
            assert last["reasoning_content"].startswith(message["reasoning_content"])
            for begun in message["tool_calls"]:
                assert begun["function"]["name"] == "bash"
                assert arguments.startswith(begun["function"]["arguments"])
            whole = choice["message"].get("tool_calls", [])
            assert all(c["function"]["arguments"] == arguments for c in whole)
            if choice["finish_reason"] == "tool_calls":
                assert len(whole) == 1
            reasons.append(choice["finish_reason"])
    cut = reasons.index("tool_calls")
    assert reasons == ["length"] * cut + ["tool_calls"] * (len(reasons) - cut)
    assert arguments == '{"command":"echo hi"}'


@pytest.mark.parametrize("burst", [1, 4])
async def test_a_text_swept_over_its_length_and_over_stop_strings(burst):
    """Prefixes of one text; a stop string cuts in front of itself and is a stop."""
    async with running_server(ScriptedEngine(VOICE.tokenizer, burst_max=burst)) as server:
        last, _ = await cut_at(server, 500)
        text, thought = last["content"], last["reasoning_content"]
        assert last["finish_reason"] == "stop"
        for most in range(1, 40):
            message, choice = await cut_at(server, most)
            assert text.startswith(message["content"])
            assert thought.startswith(message["reasoning_content"])
            whole = message["content"] == text and choice["finish_reason"] == "stop"
            assert whole or choice["finish_reason"] == "length"
        for start in range(len(text) - 2):
            stop = text[start : start + 3]
            message, choice = await cut_at(server, 500, stop=[stop])
            assert message["content"] == text[: text.index(stop)]
            assert choice["finish_reason"] == "stop"


EVERY = (*range(1, 68), *range(70, 201, 10))
"""All until a chunk has been folded, then every tenth."""
SOME = (2, 33)


@pytest.mark.parametrize("drafts", [pytest.param(0, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("lengths", [SOME, pytest.param(EVERY, marks=pytest.mark.slow)], ids=len)
async def test_every_length_of_the_real_engine_is_a_prefix_of_one_text(lengths, drafts):
    """With drafts and without, streamed and not, `max_tokens` changes how far, and nothing else."""
    sampleable = VOICE.tokenizer.vocab_size
    engine = HybridEngine.load(DEMO_PATH, max_seq=512, sampleable=sampleable, progress=False)
    wish = {"temperature": 1, "seed": 5, "flashrt_draft_tokens": drafts, **ENDLESS}
    async with running_server(engine, within_s=600) as server:
        longest = max(lengths)
        last, choice = await cut_at(server, longest, **wish)
        whole = last["reasoning_content"] + last["content"]
        for most in lengths:
            message, choice = await cut_at(server, most, **wish)
            assert whole.startswith(message["reasoning_content"] + message["content"])
            assert choice["finish_reason"] == (
                "length" if most < longest else last["finish_reason"]
            )
