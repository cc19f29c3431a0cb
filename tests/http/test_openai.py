"""The openai package against the routes."""

import openai
import pytest

from flashrt.chat.deltas import (
    FinishReason,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from flashrt.errors import EngineFailed
from flashrt.items import WorkItem
from tests.http.vocabulary import ScriptedService, fail, finish, put, say, serving, whole_answer

MESSAGES = [{"role": "user", "content": "hi"}]


def client(server: object, key: str = "none") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{server.address.url}/v1", api_key=key, http_client=server.client, max_retries=0
    )


async def test_models_completions_and_both_kinds_of_answer():
    """Lists, chats whole and streamed with usage, completes text and ids."""
    async with serving(ScriptedService(whole_answer("he", "llo")), api_keys=("k",)) as server:
        api = client(server, "k")
        models = await api.models.list()
        whole = await api.chat.completions.create(model="x", messages=MESSAGES)
        stream = await api.chat.completions.create(
            model="x", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        text = await api.completions.create(model="x", prompt="a")
        from_ids = await api.completions.create(model="x", prompt=[1, 2], stream=True)
        pieces = [chunk.choices[0].text async for chunk in from_ids]

    assert [model.id for model in models.data] == ["ours"]
    assert whole.choices[0].message.content == "hello"
    assert whole.usage.prompt_tokens_details.cached_tokens == 2
    assert whole.flashrt["new_prefill_tokens"] == 1
    streamed = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(streamed) == "hello"
    assert chunks[-1].usage == whole.usage
    assert text.choices[0].text == "".join(pieces) == "hello"


async def test_tool_calls_are_put_together():
    """The package's own stream helper joins a call from its pieces."""

    def script(item: WorkItem) -> None:
        put(item, [TextDelta("let me see"), ToolCallStart(0, "call_1", "ls")])
        put(item, [ToolCallArguments(0, '{"path": '), ToolCallArguments(0, '"/"}')])
        put(item, [ToolCallEnd(0)])
        put(item, [ToolCallStart(1, "call_2", "pwd"), ToolCallArguments(1, "{}"), ToolCallEnd(1)])
        finish(item, FinishReason.TOOL_CALLS)

    async with serving(ScriptedService(script)) as server:
        api = client(server)
        async with api.chat.completions.stream(model="x", messages=MESSAGES) as stream:
            joined = (await stream.get_final_completion()).choices[0]
        whole = (await api.chat.completions.create(model="x", messages=MESSAGES)).choices[0]

    for choice in (joined, whole):
        calls = [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls]
        assert calls == [("call_1", "ls", '{"path": "/"}'), ("call_2", "pwd", "{}")]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "let me see"


async def test_an_error_in_the_middle_is_raised():
    """The package raises what the error event says, after the pieces that came before."""

    def script(item: WorkItem) -> None:
        say(item, "a")
        fail(item, EngineFailed("The step failed."))

    seen = []

    async def read(stream: openai.AsyncStream) -> None:
        async for chunk in stream:
            seen.append(chunk.choices[0].delta.content)

    async with serving(ScriptedService(script)) as server:
        stream = await client(server).chat.completions.create(
            model="x", messages=MESSAGES, stream=True
        )
        with pytest.raises(openai.APIError, match="The step failed"):
            await read(stream)

    assert seen == ["", "a"]


async def test_a_refusal_is_the_packages_own_exception():
    """400 and 401 arrive as the classes that its users catch."""
    async with serving(api_keys=("k",)) as server:
        with pytest.raises(openai.BadRequestError) as caught:
            await client(server, "k").chat.completions.create(model="x", messages=[])
        with pytest.raises(openai.AuthenticationError):
            await client(server, "wrong").models.list()

    assert caught.value.param == "messages"
