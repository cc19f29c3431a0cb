"""The routes of Anthropic Messages, and its package against them."""

import json
from contextlib import asynccontextmanager

import anthropic
import httpx2
import pytest

from flashrt.chat.deltas import (
    FinishReason,
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from flashrt.errors import (
    EngineFailed,
    PromptTooLong,
    QueueFull,
    Unavailable,
)
from flashrt.items import Finished, WorkItem
from tests.http.vocabulary import (
    ScriptedService,
    fail,
    finish,
    post,
    put,
    read_until,
    say,
    serving,
    whole_answer,
)
from tests.protocols.messages_reader import Reader, named_events

PATH = "/v1/messages"
HELLO = {"model": "x", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def client(server, key="k"):
    """The package, over the backend that this test runs on."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        yield anthropic.AsyncAnthropic(
            base_url=server.address.url, api_key=key, http_client=http, max_retries=0
        )


def thoughtful(item: WorkItem) -> None:
    """Thinking, text and two calls."""
    put(item, [ThinkingDelta("let "), ThinkingDelta("me")])
    put(item, [TextDelta("see"), ToolCallStart(0, "call_1", "ls")])
    put(item, [ToolCallArguments(0, '{"path": '), ToolCallArguments(0, '"/"}')])
    put(item, [ToolCallEnd(0)])
    put(item, [ToolCallStart(1, "call_2", "pwd"), ToolCallArguments(1, "{}"), ToolCallEnd(1)])
    finish(item, FinishReason.TOOL_CALLS)


async def test_the_package_reads_the_same_message_from_a_stream_and_from_a_body():
    """Thinking with its signature, text, calls with their input, usage and why it ended."""
    service = ScriptedService(thoughtful)
    async with serving(service, api_keys=("k",)) as server, client(server) as api:
        async with api.messages.stream(**HELLO) as stream:
            joined = await stream.get_final_message()
        whole = await api.messages.create(**HELLO)

    for message in (joined, whole):
        thought, text, *calls = message.content
        assert (thought.thinking, text.text) == ("let me", "see")
        assert thought.signature
        assert [(c.id, c.name, c.input) for c in calls] == [
            ("call_1", "ls", {"path": "/"}),
            ("call_2", "pwd", {}),
        ]
        assert message.stop_reason == "tool_use"
        assert message.usage.cache_read_input_tokens == 2
        assert message.usage.input_tokens == 1
        assert message.usage.output_tokens == 5
    assert joined.id == "msg_r1"
    assert whole.id == "msg_r2"
    assert whole.flashrt["new_prefill_tokens"] == 1


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (QueueFull("x", retry_after_s=7), anthropic.RateLimitError, 429),
        (Unavailable("x"), anthropic.InternalServerError, 503),
        (EngineFailed("x"), anthropic.InternalServerError, 500),
        (
            PromptTooLong("x", prompt_tokens=9, max_tokens=7),
            anthropic.BadRequestError,
            400,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_refusal_is_the_packages_own_exception(error, kind, status):
    """With the object of its kind, the request's id, and Retry-After as it was."""
    service = ScriptedService()
    service.refuse_with = error
    async with serving(service, overflow_status=413) as server, client(server) as api:
        with pytest.raises(kind) as refused:
            await api.messages.create(**HELLO)
    body = refused.value.body
    assert refused.value.status_code == status
    assert body["type"] == "error"
    assert body["request_id"] == refused.value.request_id
    retry = refused.value.response.headers.get("retry-after")
    assert retry == ("7" if status == 429 else None)
    if status == 400:
        assert body["error"]["message"] == "prompt is too long: 9 tokens > 7 maximum"


async def test_keys_and_wrong_fields_are_refused_in_the_protocols_words():
    """Either header has the key; a wrong field is named."""
    async with serving(ScriptedService(whole_answer("a")), api_keys=("k",)) as server:
        async with client(server, "wrong") as api:
            with pytest.raises(anthropic.AuthenticationError):
                await api.messages.create(**HELLO)
        bearer = {"Authorization": "Bearer k"}
        answer = await server.client.post(f"{PATH}?beta=true", json=HELLO, headers=bearer)
        wrong = await server.client.post(PATH, json={"messages": 1}, headers=bearer)
        lost = await server.client.get(f"{PATH}/batches", headers=bearer)
    assert answer.status_code == 200
    assert wrong.json()["error"]["type"] == "invalid_request_error"
    assert "`messages`" in wrong.json()["error"]["message"]
    assert lost.json()["error"]["type"] == "not_found_error"
    assert lost.json()["request_id"] == lost.headers["request-id"]


async def test_an_error_in_the_middle_is_raised_after_what_came_before():
    """One error event, under its name, and nothing behind it."""

    def script(item: WorkItem) -> None:
        say(item, "a")
        fail(item, EngineFailed("The step failed."))

    seen = []
    async with serving(ScriptedService(script)) as server:

        async def read(api: anthropic.AsyncAnthropic) -> None:
            async with api.messages.stream(**HELLO) as stream:
                async for text in stream.text_stream:
                    seen.append(text)

        async with client(server) as api:
            with pytest.raises(anthropic.APIStatusError, match=r"The step failed\."):
                await read(api)
        raw = await server.client.post(PATH, json={**HELLO, "stream": True})
    assert seen == ["a"]
    assert named_events(raw.content)[-1]["error"]["type"] == "api_error"


async def test_a_failed_answer_that_is_not_streamed_has_the_id_of_its_record():
    """So the log has more about it."""
    script = ScriptedService(lambda item: fail(item, EngineFailed("It broke.")))
    async with serving(script) as server:
        answer = await server.client.post(PATH, json=HELLO)
    assert answer.status_code == 500
    assert answer.json()["request_id"] == answer.headers["request-id"] == "r1"


async def test_a_silent_stream_sends_pings_and_begins_at_once():
    """Headers and a first byte before the engine has begun; then a ping a heartbeat."""
    service = ScriptedService()
    async with serving(service, heartbeat_s=0.02) as server:
        stream = await server.ask({**HELLO, "stream": True}, PATH)
        head = await read_until(stream, b"event: ping")
        item = await service.opened()
        early = await read_until(stream, b'"progress"')
        assert b"message_start" not in early
        item.record.prefix_action = "append"
        begun = await read_until(stream, b"message_start")
        await read_until(stream, b'"progress"')
        say(item, "a")
        finish(item)
        rest = await read_until(stream, b"message_stop")
    assert b"text/event-stream" in head
    assert b"cache_read_input_tokens" in begun + rest
    assert rest.count(b"message_start") <= 1


async def test_a_stop_string_is_named():
    """In both forms."""

    def script(item: WorkItem) -> None:
        say(item, "a")
        item.sink.end(Finished(FinishReason.STOP, "END"))

    async with serving(ScriptedService(script)) as server:
        streamed = await server.client.post(PATH, json={**HELLO, "stream": True})
        whole = (await server.client.post(PATH, json=HELLO)).json()
    for message in (Reader().read(streamed.content), whole):
        assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "END")


async def test_tokens_are_counted_and_models_listed_for_the_package():
    """Of the same body; by either page."""
    async with serving() as server, client(server) as api:
        counted = await api.messages.count_tokens(model="x", messages=HELLO["messages"])
        listed = [model async for model in api.models.list()]
        one = await api.models.retrieve("ours")
    assert counted.input_tokens == len("messages")
    assert [model.id for model in listed] == [one.id] == ["ours"]
    assert one.max_input_tokens == 4096
    assert one.created_at.timestamp() == 1_700_000_000
    anthropic.types.ModelInfo.model_validate_json(one.model_dump_json(), strict=True)


async def test_a_client_that_leaves_a_stream_is_left():
    """The item is given back."""
    service = ScriptedService()
    async with serving(service) as server:
        stream = await server.connect()
        await stream.send_all(post({**HELLO, "stream": True}, PATH))
        item = await service.opened()
        say(item, "a")
        await read_until(stream, b"text_delta")
        await stream.aclose()
        assert await service.left() is item
    assert service.balance == 0


async def test_a_body_that_is_no_json_is_refused_in_the_protocols_words():
    """Before anything is read of it, and after."""
    async with serving() as server:
        typed = await server.client.post(PATH, content=b"{}", headers={"Content-Type": "text/x"})
        broken = await server.client.post(
            f"{PATH}/count_tokens", content=b"{", headers={"Content-Type": "application/json"}
        )
    assert (typed.status_code, broken.status_code) == (415, 400)
    for answer in (typed, broken):
        said = json.loads(answer.content)
        assert said["type"] == "error"
        assert said["error"]["type"] == "invalid_request_error"
