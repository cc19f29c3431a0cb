"""The main job, end to end: the openai package against the real server on the demo checkpoint."""

from contextlib import asynccontextmanager
from functools import partial

import openai
import pytest
import trio

from tests.whole.server import VOICE, running_server
from tests.whole.talk import demo_engine

TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
        },
    },
}
MESSAGES = [
    {"role": "system", "content": "You are a coding agent."},
    {"role": "user", "content": "What is in README.md?"},
]


@asynccontextmanager
async def openai_client(engine):
    """The stock client, used in a thread as its users do."""
    async with running_server(engine) as server:
        threaded = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
        yield threaded, openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


async def test_a_stock_client_lists_the_model_with_its_context_length():
    """`/v1/models` names ours, and how long its window is."""
    async with openai_client(demo_engine(max_seq=2048)) as (threaded, client):
        models = await threaded(lambda: list(client.models.list()))
    assert len(models) == 1
    assert models[0].max_model_len == 2048


@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["no tools", "tools"])
async def test_streamed_and_buffered_answers_are_the_same(tools):
    """Same request, same seed: joined chunks equal the body, and usage agrees."""
    wish = {"model": "any", "messages": MESSAGES, "max_tokens": 24, "seed": 7, "temperature": 1.0}
    if tools:
        wish["tools"] = tools

    def both(client):
        body = client.chat.completions.create(**wish)
        chunks = list(
            client.chat.completions.create(
                **wish, stream=True, stream_options={"include_usage": True}
            )
        )
        return body, chunks

    async with openai_client(demo_engine(max_seq=2048)) as (threaded, client):
        body, chunks = await threaded(both, client)
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(d.content or "" for d in deltas) == (body.choices[0].message.content or "")
    thinking = "".join(getattr(d, "reasoning_content", None) or "" for d in deltas)
    assert thinking == (getattr(body.choices[0].message, "reasoning_content", None) or "")
    assert thinking or body.choices[0].message.content
    endings = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
    assert endings == [body.choices[0].finish_reason]
    assert chunks[-1].usage.completion_tokens == body.usage.completion_tokens <= 24
    assert chunks[-1].usage.prompt_tokens == body.usage.prompt_tokens


async def test_the_next_turn_of_a_conversation_is_appended_and_reads_as_cold():
    """A session that goes on by ids reuses the state; in float32 its ids equal a cold server's."""

    def ask(client, ids, count):
        answer = client.completions.create(
            model="any",
            prompt=ids,
            max_tokens=count,
            temperature=0,
            extra_body={"flashrt_return_token_ids": True},
        )
        return answer.flashrt, answer.usage

    first_ids = list(VOICE.tokenizer.encode_text("def main():\n    print('hello')\n" * 12))
    async with openai_client(demo_engine(max_seq=2048)) as (threaded, client):
        first, _ = await threaded(ask, client, first_ids, 20)
        assert first["prefix_action"] == "rebuild"
        next_ids = [*first_ids, *first["completion_token_ids"], *first_ids[:30]]
        warm, usage = await threaded(ask, client, next_ids, 20)
    assert warm["prefix_action"] == "append"
    assert usage.prompt_tokens_details.cached_tokens == len(first_ids) + 19
    assert warm["cached_tokens"] + warm["new_prefill_tokens"] == len(next_ids)
    async with openai_client(demo_engine(max_seq=2048)) as (threaded, client):
        cold, _ = await threaded(ask, client, next_ids, 20)
    assert cold["prefix_action"] == "rebuild"
    assert warm["completion_token_ids"] == cold["completion_token_ids"]


async def test_a_client_that_hangs_up_gets_the_right_answer_when_it_asks_again():
    """Hang up in the middle of a stream, ask again: the cold answer."""
    wish = {"model": "any", "messages": MESSAGES, "temperature": 0}

    def hang_up(client):
        stream = client.chat.completions.create(**wish, max_tokens=1500, stream=True)
        for number, _ in enumerate(stream):
            if number == 5:
                stream.close()
                return

    def ask(client):
        return client.chat.completions.create(**wish, max_tokens=12)

    async with openai_client(demo_engine(max_seq=2048)) as (threaded, client):
        cold = await threaded(ask, client)
        await threaded(hang_up, client)
        again = await threaded(ask, client)
    assert again.flashrt["prefix_action"] == "truncate"
    assert again.flashrt["new_prefill_tokens"] < 10
    assert again.choices[0].message == cold.choices[0].message
