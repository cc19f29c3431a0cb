"""The official openai package against the real server on the demo model, which has no sense of its
own: where a client needs it, the request forces it."""

import json

import openai
import pytest

from flashrt.demo import DEMO_PATH
from flashrt.engine.hybrid import HybridEngine
from tests.whole.server import VOICE, running_server

# One digit is one token, so even noise writes the call as the template would.
LINE = {"type": "integer", "minimum": 1, "maximum": 9}
READ = {
    "name": "read",
    "parameters": {"type": "object", "properties": {"line": LINE}, "required": ["line"]},
}
TOOLS = [{"type": "function", "function": READ}]
NAMED = {"type": "function", "function": {"name": "read"}}
PLAIN = {"enable_thinking": False}


@pytest.fixture(scope="module")
def engine():
    return HybridEngine.load(
        DEMO_PATH,
        max_seq=2048,
        sampleable=VOICE.tokenizer.vocab_size,
        threads=1,
        progress=False,
    )


def client(server):
    return openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="any", http_client=server.http, max_retries=0
    )


async def test_a_tool_loop_streams_its_calls_and_keeps_its_prefix(engine):
    """Call after call, results in between, then text; each turn finds the turn before (G1)."""
    messages = [{"role": "user", "content": "look around"}]
    async with running_server(engine) as server:
        api = client(server)
        before = 0
        for turn in range(3):
            async with api.chat.completions.stream(
                model="m",
                messages=messages,
                tools=TOOLS,
                tool_choice=NAMED if turn < 2 else "none",
                max_tokens=80,
                temperature=0,
                stream_options={"include_usage": True},
                extra_body=PLAIN,
            ) as stream:
                async for _ in stream:
                    pass
                whole = stream.current_completion_snapshot
            assert whole.usage.prompt_tokens_details.cached_tokens >= before
            before = whole.usage.prompt_tokens
            message = whole.choices[0].message
            if turn == 2:
                break
            (call,) = message.tool_calls
            assert 1 <= json.loads(call.function.arguments)["line"] <= 9
            assert whole.choices[0].finish_reason == "tool_calls"
            messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"result {turn}"})
    assert not message.tool_calls
    assert message.content


async def test_a_stream_that_is_left_harms_nobody_and_refusals_are_typed(engine):
    """Cancellation, then the package's own exceptions, then a normal answer."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "go"}], "extra_body": PLAIN}
    async with running_server(engine) as server:
        api = client(server)
        stream = await api.chat.completions.create(**asked, stream=True, max_tokens=1500)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        with pytest.raises(openai.BadRequestError) as refused:
            await api.chat.completions.create(**asked, tool_choice="required")
        with pytest.raises(openai.NotFoundError):
            await api.files.list()
        after = await api.chat.completions.create(**asked, max_tokens=3)
    assert refused.value.param == "tool_choice"
    assert after.usage.completion_tokens == 3
