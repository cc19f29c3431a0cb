"""Log-probabilities over HTTP: as many as tokens, whatever was drafted, and nothing unasked."""

import math

import openai
import pytest

from tests.http.vocabulary import sse
from tests.whole.server import VOICE, chat_body, fake_engine, running_server
from tests.whole.talk import demo_engine

ASKED = {"logprobs": True, "top_logprobs": 3, "max_tokens": 12}


@pytest.fixture(scope="module")
def engine():
    return demo_engine(max_seq=1024)


async def test_there_are_as_many_as_tokens_streamed_or_not():
    """With bursts too, and cut where the answer is cut."""
    async with running_server(fake_engine(burst_max=5)) as server:
        body = await server.chat("hi", **ASKED)
        answer = await server.http.post(
            "/v1/chat/completions", json=chat_body("hi", **ASKED, stream=True)
        )
    told = body["choices"][0]["logprobs"]["content"]
    *chunks, _ = sse(answer.text)
    pieces = [c["choices"][0].get("logprobs") for c in chunks]
    assert [one for piece in pieces if piece for one in piece["content"]] == told
    assert len(told) == body["usage"]["completion_tokens"] == 12
    ids = body["flashrt"]["completion_token_ids"]
    assert [bytes(one["bytes"]) for one in told] == list(map(VOICE.tokenizer.id_to_bytes, ids))


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "seed": 5}])
async def test_drafts_and_limits_change_no_logprob(engine, sampling):
    """They are the model's own, before anything that limits the choice."""
    async with running_server(engine, capsule_budget_mb=0) as server:  # always the same path
        alone, drafted = [
            (await server.chat("hi", **ASKED, **sampling, flashrt_draft_tokens=count))["choices"]
            for count in (0, 4)
        ]
        forced = await server.chat("hi", **ASKED, temperature=0, logit_bias={"7": 100})
        (free,) = (await server.chat("hi", **ASKED, temperature=0))["choices"]
    assert alone[0]["logprobs"] == drafted[0]["logprobs"]
    for one in alone[0]["logprobs"]["content"]:
        values = [top["logprob"] for top in one["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert one["logprob"] <= values[0] < 0
        assert sum(map(math.exp, values)) < 1
    (biased,) = forced["choices"]
    first, other = (c["logprobs"]["content"][0] for c in (free, biased))
    assert first["top_logprobs"] == other["top_logprobs"]
    assert other["logprob"] < first["logprob"]


async def test_text_completions_tell_them_their_own_way():
    """Four lists; the sampled token is among the likeliest."""
    async with running_server(fake_engine(burst_max=3)) as server:
        api = openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="any", http_client=server.http, max_retries=0
        )
        whole = await api.completions.create(model="m", prompt="hi", logprobs=2, max_tokens=9)
    told = whole.choices[0].logprobs
    assert len(told.tokens) == whole.usage.completion_tokens == 9
    assert told.text_offset[0] == 0
    for token, value, top in zip(told.tokens, told.token_logprobs, told.top_logprobs, strict=True):
        assert top[token] == value
        assert 2 <= len(top) <= 3


async def test_the_openai_package_puts_streamed_ones_together():
    """Chunks with and without them are one list in the end."""
    async with running_server(fake_engine(burst_max=3)) as server:
        api = openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="any", http_client=server.http, max_retries=0
        )
        async with api.chat.completions.stream(
            model="m",
            messages=[{"role": "user", "content": "hi"}],
            logprobs=True,
            top_logprobs=2,
            max_tokens=9,
            stream_options={"include_usage": True},
        ) as stream:
            async for _ in stream:
                pass
            whole = stream.current_completion_snapshot
    told = whole.choices[0].logprobs.content
    assert len(told) == whole.usage.completion_tokens == 9
    assert all(len(one.top_logprobs) == 2 for one in told)


async def test_what_nobody_asked_for_is_not_told():
    """`logprobs` is null."""
    async with running_server(fake_engine()) as server:
        assert (await server.chat("hi"))["choices"][0]["logprobs"] is None
