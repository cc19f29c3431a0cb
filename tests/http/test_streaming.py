"""Streams over a real socket: what is sent when, and how they end."""

import json

import pytest
import trio

from flashrt.chat.deltas import (
    FinishReason,
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
    ToolCallStart,
)
from flashrt.errors import EngineFailed, QueueFull
from flashrt.http.app import make_app
from flashrt.http.options import HttpOptions
from flashrt.items import Output, WorkItem
from tests.http.vocabulary import (
    CHAT,
    HELLO,
    ScriptedService,
    asgi_scope,
    fail,
    finish,
    put,
    read_until,
    say,
    serving,
    sse,
    whole_answer,
)

STREAM = {**HELLO, "stream": True}


async def test_a_stream_is_headers_chunks_and_a_terminator():
    """The role, the text, the finish chunk with the flashrt block, [DONE]; never cached."""
    async with serving(ScriptedService(whole_answer("a", "b"))) as server:
        answer = await server.client.post(CHAT, json=STREAM)

    *chunks, done = sse(answer.text)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert done == "[DONE]"
    texts = [c["choices"][0]["delta"].get("content") for c in chunks]
    assert "".join(text or "" for text in texts) == "ab"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["flashrt"]["cached_tokens"] == 2


async def test_a_body_is_the_same_answer():
    """Not streamed, the same deltas make one chat.completion with usage."""

    def script(item: WorkItem) -> None:
        put(item, [ThinkingDelta("hm")])
        put(item, [TextDelta("ok"), ToolCallStart(0, "c", "f"), ToolCallArguments(0, "{}")])
        finish(item, FinishReason.TOOL_CALLS)

    async with serving(ScriptedService(script)) as server:
        answer = (await server.client.post(CHAT, json={**HELLO, "model": "gpt-x"})).json()
        (item,) = [await server.service.left()]

    assert answer["object"] == "chat.completion"
    assert answer["model"] == "gpt-x"
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["choices"][0]["message"]["reasoning_content"] == "hm"
    assert answer["usage"]["total_tokens"] == 5
    assert answer["id"] == f"chatcmpl-{item.record.request_id}"


async def test_headers_and_role_go_out_before_the_engine_has_done_anything():
    """A client learns at once that it was admitted, however long its prefill takes."""
    async with serving() as server:
        stream = await server.ask(STREAM)

        got = await read_until(stream, b'"role":"assistant"')

        assert got.startswith(b"HTTP/1.1 200")


async def test_each_output_is_sent_when_it_comes():
    """Nothing is held back until the end."""
    async with serving() as server:
        stream = await server.ask(STREAM)
        item = await server.service.opened()
        for word in ("one", "two", "three"):
            say(item, word)

            await read_until(stream, word.encode())


async def test_what_is_waiting_is_joined():
    """Outputs that wait together become one chunk, and no id of them is lost."""
    script = whole_answer(*"abcdef")
    async with serving(ScriptedService(script)) as server:
        answer = await server.client.post(CHAT, json={**STREAM, "flashrt_return_token_ids": True})

    *chunks, _ = sse(answer.text)
    assert [c["choices"][0]["delta"].get("content") for c in chunks] == ["", "abcdef", None]
    assert chunks[-1]["flashrt"]["completion_token_ids"] == [1, 2, 3, 4, 5, 6]
    assert chunks[-1]["flashrt"]["prompt_token_ids"] == [1, 2, 3]


MISS = {"message": 2, "byte": 40, "kind": "message"}
BUILT = ((2, False, ()), (3, True, ()))


def broken_prefix(item: WorkItem) -> None:
    """A short answer to a prompt whose beginning was changed."""
    item.record.miss, item.record.pin, item.record.lineage = MISS, {"pinned_tokens": 2}, BUILT
    say(item, "a")
    finish(item)


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
async def test_the_block_says_where_the_prefix_broke(path):
    """Message, byte and kind, and what came of the pin; in the last chunk as in a body."""
    body = {**HELLO, "prompt": "a"}
    async with serving(ScriptedService(broken_prefix)) as server:
        whole = (await server.client.post(path, json=body)).json()["flashrt"]
        streamed = sse((await server.client.post(path, json={**body, "stream": True})).text)

    assert (whole["miss"], whole["pin"]) == (MISS, {"pinned_tokens": 2})
    assert {**streamed[-2]["flashrt"], "request_id": "r1"} == whole


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked", [None, False, True])
async def test_the_lineage_is_in_the_block_only_with_the_ids(asked, stream):
    """Who does not ask for ids is not shown how their state was built."""
    body = {**HELLO, "stream": stream, "flashrt_return_token_ids": asked}
    async with serving(ScriptedService(broken_prefix)) as server:
        answer = await server.client.post(CHAT, json=body)

    block = sse(answer.text)[-2]["flashrt"] if stream else answer.json()["flashrt"]
    shown = {"lineage", "prompt_token_ids", "completion_token_ids"} & block.keys()
    assert len(shown) == (3 if asked else 0)
    assert block.get("lineage") == ([[2, "prefill", []], [3, "decode", []]] if asked else None)


async def test_silence_is_filled_with_how_far_things_are():
    """While nothing comes, a chunk of the protocol says so every heartbeat: some clients' timers do
    not count comments. The answer loses nothing by it."""
    async with serving(heartbeat_s=0.01) as server:
        stream = await server.ask(STREAM)
        item = await server.service.opened()
        item.record.processed_tokens = 2
        heard = await read_until(stream, b'"processed_tokens":2')
        (pulse,) = (c for c in sse(heard.decode() + "\n\n")[1:2])
        assert pulse["choices"][0]["delta"] == {}
        progress = pulse["flashrt"]["progress"]
        assert progress.pop("elapsed_ms") > 0
        assert set(progress) == {
            "state", "total_tokens", "cached_tokens", "processed_tokens", "completion_tokens"
        }  # fmt: skip

        say(item, "late")
        finish(item)

        assert b"late" in await read_until(stream, b"data: [DONE]")


async def test_a_stream_may_take_as_long_as_it_takes(autojump_clock):
    """An hour of silence is an hour of heartbeats; then the answer is whole."""
    service = ScriptedService()
    app = make_app(service, HttpOptions())
    asked = [{"type": "http.request", "body": json.dumps(STREAM).encode(), "more_body": False}]
    written = b""

    async def receive() -> dict[str, object]:
        return asked.pop() if asked else await trio.sleep_forever()

    async def send(message: dict[str, object]) -> None:
        nonlocal written
        await trio.lowlevel.checkpoint()
        written += message.get("body", b"")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(app, asgi_scope(), receive, send)
        item = await service.opened()
        for _ in range(1200):  # what is held back is silence to whoever listens
            item.sink.put(Output((), ()))
            await trio.sleep(3)
        say(item, "late")
        finish(item)

    assert written.count(b'"progress"') == pytest.approx(3600 / 5, abs=2)
    assert b"late" in written
    assert written.endswith(b"data: [DONE]\n\n")


async def test_a_failure_in_the_middle_is_an_error_event_and_nothing_else():
    """After the headers a failure is the last event: no finish reason, no terminator."""

    def script(item: WorkItem) -> None:
        say(item, "a")
        fail(item, EngineFailed("The step failed."))

    async with serving(ScriptedService(script)) as server:
        answer = await server.client.post(CHAT, json=STREAM)
        await server.service.left()

    *chunks, error = sse(answer.text)
    assert error == {
        "error": {
            "message": "The step failed.",
            "type": "server_error",
            "param": None,
            "code": "engine_failed",
        }
    }
    assert all(c["choices"][0]["finish_reason"] is None for c in chunks)
    assert "[DONE]" not in answer.text


async def test_a_fault_of_ours_in_the_middle_is_an_error_event_that_says_little():
    """A bug while a stream is written ends it with one error event; the server goes on."""

    class Ids(tuple):
        def __iter__(self):
            raise TypeError("not iterable")

    def script(item: WorkItem) -> None:
        say(item, "a")
        item.sink.put(Output((), Ids()))
        finish(item)

    async with serving(ScriptedService(script)) as server:
        answer = await server.client.post(CHAT, json=STREAM)
        await server.service.left()
        health = await server.client.get("/health")

    assert sse(answer.text)[-1]["error"]["code"] == "internal_error"
    assert "[DONE]" not in answer.text
    assert "not iterable" not in answer.text
    assert health.status_code == 200


async def test_an_answer_that_just_stops_is_an_error():
    """A sink that closes without its terminal event never looks like a normal stop."""
    async with serving() as server:
        stream = await server.ask(STREAM)
        item = await server.service.opened()
        item.sink._send.close()

        got = await read_until(stream, b"without a result")

        assert b"[DONE]" not in got


@pytest.mark.parametrize(
    ("error", "status"), [(EngineFailed("x"), 500), (QueueFull("full", retry_after_s=3), 429)]
)
async def test_a_buffered_failure_has_a_status(error, status):
    """Without a stream, a failure is an error answer."""
    async with serving(ScriptedService(lambda item: fail(item, error))) as server:
        answer = await server.client.post(CHAT, json=HELLO)
        await server.service.left()

    assert answer.status_code == status
    assert answer.json()["error"]["message"] == str(error)


async def test_text_completions_take_the_same_way():
    """/v1/completions, streamed and not."""
    async with serving(ScriptedService(whole_answer("a", "b"))) as server:
        asked = {"prompt": [1, 2]}
        whole = (await server.client.post("/v1/completions", json=asked)).json()
        streamed = await server.client.post("/v1/completions", json={**asked, "stream": True})

    chunks = sse(streamed.text)[:-1]
    assert whole["choices"][0]["text"] == "ab"
    assert "".join(c["choices"][0]["text"] for c in chunks) == "ab"
    assert json.dumps(chunks[-1]["flashrt"]).count("cached_tokens") == 1
