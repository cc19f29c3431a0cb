"""Anthropic Messages and its official package against the real server on the demo model, which has
little sense of its own: where a client needs it, the request forces it."""

from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import pydantic
import pytest

from flashrt.demo import DEMO_PATH
from flashrt.engine.hybrid import HybridEngine
from flashrt.protocols.messages_thinking import SEALED, thought_of
from tests.whole.server import ENDLESS, VOICE, running_server

# One digit is one token, so even noise writes the call as the template would.
LINE = {"type": "integer", "minimum": 1, "maximum": 9}
SCHEMA = {"type": "object", "properties": {"line": LINE}, "required": ["line"]}
READ = {"name": "read", "description": "Reads a line.", "input_schema": SCHEMA}
SYSTEM = "You look at files, one line after the other, and say what is there."
THINK = {"type": "enabled", "budget_tokens": 1024}


class Point(pydantic.BaseModel):
    """What a structured answer is to be."""

    line: int


@pytest.fixture(scope="module")
def engine():
    return HybridEngine.load(
        DEMO_PATH,
        max_seq=2048,
        sampleable=VOICE.tokenizer.vocab_size,
        threads=1,
        progress=False,
    )


@asynccontextmanager
async def serving(engine, **wish):
    """The server, and the package for it."""
    async with running_server(engine, **wish) as server, httpx2.AsyncClient(verify=False) as http:
        yield (
            server,
            anthropic.AsyncAnthropic(
                base_url=server.url, api_key="any", http_client=http, max_retries=0
            ),
        )


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def asked(*messages: dict[str, Any], body: Any = None, **more: Any) -> dict[str, Any]:
    """A greedy request; `body`: fields that the package does not know."""
    fields = {"model": "m", "max_tokens": 40, "messages": list(messages), **more}
    return {**fields, "extra_body": {"temperature": 0, **(body or {})}}


def prompt_tokens(usage) -> int:
    return usage.input_tokens + usage.cache_read_input_tokens


async def test_a_tool_loop_streams_its_calls_and_keeps_its_prefix(engine):
    """Call after call, a cache mark that moves, results that fail; each turn finds the turn before
    (G1), and what is counted beforehand is the prompt."""
    mark = {"cache_control": {"type": "ephemeral"}}
    messages = [user([{"type": "text", "text": "look around", **mark}])]
    async with serving(engine) as (_, api):
        whole = 0
        for turn in range(3):
            choice = {"type": "tool", "name": "read"} if turn < 2 else {"type": "none"}
            wish = {"system": SYSTEM, "tools": [READ], "tool_choice": choice}
            request = asked(*messages, body={"unknown": 1}, **wish)
            counted = await api.messages.count_tokens(
                model="m", messages=messages, system=SYSTEM, tools=[READ], tool_choice=choice
            )
            async with api.messages.stream(
                **request, extra_headers={"anthropic-beta": "x-2030"}
            ) as stream:
                message = await stream.get_final_message()
            assert prompt_tokens(message.usage) == counted.input_tokens
            assert message.usage.cache_read_input_tokens >= whole
            whole = prompt_tokens(message.usage)
            if turn == 2:
                break
            (call,) = message.content
            assert 1 <= call.input["line"] <= 9
            assert message.stop_reason == "tool_use"
            result = {"type": "tool_result", "tool_use_id": call.id, "content": f"result {turn}"}
            messages[-1]["content"][-1].pop("cache_control")
            messages.append({"role": "assistant", "content": message.content})
            messages.append(user([{**result, "is_error": turn == 1, **mark}]))
    assert [block.type for block in message.content] == ["text"]
    assert message.stop_reason in ("end_turn", "max_tokens")


async def test_chat_and_messages_are_one_conversation(engine):
    """The same ids, the same words, and the state of one is the state of the other."""
    ids = {"flashrt_return_token_ids": True}
    async with serving(engine) as (server, api):
        said = await api.messages.create(**asked(user("hello there"), system=SYSTEM, body=ids))
        block = said.model_extra["flashrt"]
        system = {"role": "system", "content": SYSTEM}
        turns = [system, user("hello there")]
        chat = await server.chat("", messages=turns, max_tokens=40, enable_thinking=False)
        assert chat["flashrt"]["prompt_token_ids"] == block["prompt_token_ids"]
        assert chat["choices"][0]["message"]["content"] == said.content[0].text
        turns += [chat["choices"][0]["message"], user("and now?")]
        after = await server.chat("", messages=turns, enable_thinking=False)
    # All of the answer is there, but for its last token, which is pending.
    known = len(block["prompt_token_ids"]) + len(block["completion_token_ids"]) - 1
    assert after["flashrt"]["cached_tokens"] >= known


@pytest.mark.parametrize("display", ["omitted", pytest.param("summarized", marks=pytest.mark.slow)])
async def test_a_thought_that_is_sent_back_is_found_again(engine, display):
    """Sealed or shown, it is the thought, and the next turn computes its own words alone."""
    config = {**THINK, "display": display}
    question = user("Think about rivers.")
    async with serving(engine) as (_, api):
        async with api.messages.stream(**asked(question, thinking=config)) as stream:
            first = await stream.get_final_message()
        thought = first.content[0]
        assert thought.type == "thinking"
        assert bool(thought.thinking) is (display == "summarized")
        assert thought.signature.startswith(SEALED) is (display == "omitted")
        assert thought_of(thought.model_dump())
        assert first.usage.output_tokens_details.thinking_tokens > 0
        turns = [question, {"role": "assistant", "content": first.content}, user("And?")]
        second = await api.messages.create(**asked(*turns, thinking=config))
    before = prompt_tokens(first.usage) + first.usage.output_tokens
    assert second.usage.cache_read_input_tokens >= before - 1
    assert second.model_extra["flashrt"]["miss"] is None


async def test_a_session_with_another_billing_line_finds_the_common_opening(engine):
    """Whatever a client counts by in front of its system text, and whatever it calls itself."""
    rules = "\n".join(f"{i}. Look at line {i % 7} and say what it says." for i in range(40))

    def opening(billed: str) -> list[dict[str, Any]]:
        line = f"x-anthropic-billing-header: cc_version=2.1.332.{billed}; cc_entrypoint=cli;"
        return [{"type": "text", "text": line}, {"type": "text", "text": rules}]

    async with serving(engine) as (_, api):
        told = []
        for billed, question in (("31a", "Which line is it?"), ("cf6", "Say all of them.")):
            said = await api.messages.create(
                **asked(user(question), system=opening(billed), tools=[READ], max_tokens=2),
                extra_headers={"x-claude-code-session-id": billed},
            )
            told.append(said.usage)
    first, second = told
    assert first.cache_read_input_tokens == 0
    assert second.input_tokens < 40 < second.cache_read_input_tokens


async def test_structured_output_and_stop_sequences(engine):
    """The package's own reading of a schema; and the string that ended an answer is named."""
    async with serving(engine) as (_, api):
        parsed = await api.messages.parse(**asked(user("Which line?")), output_format=Point)
        free = await api.messages.create(**asked(user("hello there")))
        text = free.content[0].text
        end = text[len(text) // 2 : len(text) // 2 + 3]
        async with api.messages.stream(
            **asked(user("hello there"), stop_sequences=["never said", end])
        ) as stream:
            cut = await stream.get_final_message()
    assert isinstance(parsed.parsed_output, Point)
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", end)
    assert "".join(block.text for block in cut.content) == text[: text.index(end)]


async def test_a_prompt_that_is_too_long_is_refused_in_words_that_clients_know(engine):
    """Both numbers, as 400; and the tokens of such a prompt can still be counted."""
    async with serving(engine, max_prompt_tokens=50) as (_, api):
        long = user("one two three " * 40)
        counted = await api.messages.count_tokens(model="m", messages=[long])
        with pytest.raises(anthropic.BadRequestError) as refused:
            await api.messages.create(**asked(long))
    words = f"prompt is too long: {counted.input_tokens} tokens > 50 maximum"
    assert refused.value.body["error"] == {"type": "invalid_request_error", "message": words}


async def test_a_stream_that_is_left_harms_nobody(engine):
    """Cancellation in the middle, then a normal answer; a prefill of the assistant's goes on."""
    async with serving(engine) as (_, api):
        async with api.messages.stream(
            **asked(user("go"), max_tokens=1500, body=ENDLESS)
        ) as stream:
            async for _ in stream.text_stream:
                break
        begun = {"role": "assistant", "content": "The first line is"}
        after = await api.messages.create(**asked(user("go"), begun, max_tokens=3))
    assert after.usage.output_tokens <= 3
    assert after.role == "assistant"
