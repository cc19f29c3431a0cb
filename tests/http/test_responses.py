"""The routes of Responses: answers by their ids, whose they are, and how they are cancelled."""

from typing import Any

import pytest
import trio
from openai.types.responses import Response, ResponseItemList

from flashrt.chat.deltas import FinishReason, TextDelta, ThinkingDelta
from flashrt.engine.protocol import TokenLogprobs
from flashrt.errors import EngineFailed, PromptTooLong, QueueFull
from flashrt.items import Output, WorkItem
from tests.http.vocabulary import (
    ScriptedService,
    Server,
    fail,
    finish,
    hang_up,
    put,
    read_all,
    read_until,
    say,
    serving,
    sse,
    whole_answer,
)
from tests.protocols.responses_reader import events, read

PATH = "/v1/responses"
MINE, YOURS = {"Authorization": "Bearer mine"}, {"Authorization": "Bearer yours"}
KEYS = {"api_keys": ("mine", "yours")}


async def ask(server: Server, headers: dict[str, str] = {}, **fields: Any) -> dict[str, Any]:  # noqa: B006
    answer = await server.client.post(PATH, json={"input": "hi", **fields}, headers=headers)
    assert answer.status_code == 200, answer.text
    Response.model_validate(answer.json())
    return answer.json()


async def test_an_answer_is_kept_shown_listed_and_forgotten():
    """By default; and what is deleted is gone."""
    async with serving(ScriptedService(whole_answer("he", "llo"))) as server:
        body = await ask(server)
        place = f"{PATH}/{body['id']}"
        shown = await server.client.get(place)
        listed = await server.client.get(f"{place}/input_items")
        deleted = await server.client.delete(place)
        gone = [
            await server.client.get(place),
            await server.client.delete(place),
            await server.client.get(f"{place}/input_items"),
            await server.client.post(f"{place}/cancel"),
        ]

    assert shown.json() == body
    ResponseItemList.model_validate(listed.json())
    assert listed.json()["data"][0]["content"][0]["text"] == "hi"
    assert deleted.json() == {"id": body["id"], "object": "response", "deleted": True}
    assert [answer.status_code for answer in gone] == [404] * 4
    assert body["id"] in gone[0].json()["error"]["message"]


async def test_a_conversation_goes_on_by_the_id_of_an_answer():
    """The model gets all that was said before; thinking too."""

    def script(item: WorkItem) -> None:
        put(item, [ThinkingDelta("hm"), TextDelta("so")])
        finish(item)

    service = ScriptedService(script)
    async with serving(service) as server:
        first = await ask(server, instructions="be good")
        await service.opened()
        second = await ask(server, input="and?", previous_response_id=first["id"])
        asked = (await service.opened()).request.messages
        third = await ask(server, input="more", previous_response_id=second["id"])
        longest = (await service.opened()).request.messages

    assert asked == (
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "so", "reasoning_content": "hm"},
        {"role": "user", "content": "and?"},
    )
    assert len(longest) == 5
    assert third["previous_response_id"] == second["id"]


async def test_an_item_is_sent_as_a_reference():
    """The AI SDK does so unless `store` is false."""
    service = ScriptedService(whole_answer("so"))
    async with serving(service) as server:
        first = await ask(server)
        await service.opened()
        hello = {"role": "user", "content": "hi"}
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        await ask(server, input=[hello, reference, hello])
        asked = (await service.opened()).request.messages

    assert asked is not None
    assert asked[1] == {"role": "assistant", "content": "so"}


@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_is_kept_of_who_asks_for_that(stream):
    """`store` false: the id is unknown at once, also to go on from."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        answer = await server.client.post(
            PATH, json={"input": "hi", "store": False, "stream": stream}
        )
        name = read(answer.content)["id"] if stream else answer.json()["id"]
        shown = await server.client.get(f"{PATH}/{name}")
        on = await server.client.post(PATH, json={"input": "x", "previous_response_id": name})

    assert shown.status_code == 404
    assert (on.status_code, on.json()["error"]["code"]) == (400, "previous_response_not_found")
    assert on.json()["error"]["param"] == "previous_response_id"


async def test_another_keys_answer_is_as_unknown_as_none():
    """To show, to go on from, to refer to, to delete and to cancel, running or over (G10)."""
    service = ScriptedService()
    async with serving(service, **KEYS) as server, trio.open_nursery() as nursery:
        nursery.start_soon(ask, server, MINE)
        item = await service.opened()
        place = f"{PATH}/resp_{item.record.request_id}"

        async def strangers() -> list[tuple[int, str]]:
            asked = [
                await server.client.get(place, headers=YOURS),
                await server.client.delete(place, headers=YOURS),
                await server.client.post(f"{place}/cancel", headers=YOURS),
                await server.client.get(f"{place}/input_items", headers=YOURS),
            ]
            return [(one.status_code, one.text.replace("resp_r1", "ID")) for one in asked]

        running = await strangers()
        say(item, "a")
        finish(item)
        await service.left()
        over = await strangers()
        place = f"{PATH}/resp_unknown"
        unknown = [
            (status, text.replace("resp_unknown", "ID")) for status, text in await strangers()
        ]
        wish = {"input": "x", "previous_response_id": "resp_r1"}
        on = await server.client.post(PATH, json=wish, headers=YOURS)
        wish = {"input": [{"type": "item_reference", "id": "msg_r1_0"}]}
        referred = await server.client.post(PATH, json=wish, headers=YOURS)
        own = await server.client.get(f"{PATH}/resp_r1", headers=MINE)

    assert running == over == unknown
    assert {status for status, _ in over} == {404}
    assert (on.status_code, referred.status_code, own.status_code) == (400, 400, 200)
    assert service.cancelled == []


async def test_an_answer_that_runs_is_shown_as_it_is():
    """In progress, with what has been said."""
    service = ScriptedService()
    async with serving(service) as server:
        stream = await server.ask({"input": "hi", "stream": True}, PATH)
        item = await service.opened()
        say(item, "so far")
        await read_until(stream, b"so far")
        shown = (await server.client.get(f"{PATH}/resp_r1")).json()
        finish(item)
        await read_until(stream, b"response.completed")
        after = (await server.client.get(f"{PATH}/resp_r1")).json()

    Response.model_validate(shown)
    assert (shown["status"], after["status"]) == ("in_progress", "completed")
    assert shown["output"][0]["content"][0]["text"] == "so far"


async def test_a_running_answer_is_cancelled_by_its_id():
    """The stream ends with one event and keeps what was said; the cancel's answer is the same."""
    service = ScriptedService()
    answers = []
    async with serving(service) as server, trio.open_nursery() as nursery:
        stream = await server.ask({"input": "hi", "stream": True}, PATH)
        item = await service.opened()
        say(item, "so far")
        await read_until(stream, b"so far")

        async def cancel() -> None:
            answers.append(await server.client.post(f"{PATH}/resp_r1/cancel"))

        nursery.start_soon(cancel)
        while not service.cancelled:
            await trio.lowlevel.checkpoint()
        say(item, ", and a bit")
        assert item.cancel.why is not None
        fail(item, item.cancel.why)  # as the engine does at its next boundary
        rest = await read_until(stream, b"response.incomplete")
        await service.left()
        shown = await server.client.get(f"{PATH}/resp_r1")
        again = await server.client.post(f"{PATH}/resp_r1/cancel")

    assert rest.count(b"event: response.incomplete") == 1
    cancelled = answers[0].json()
    Response.model_validate(cancelled)
    assert cancelled["status"] == "cancelled"
    assert cancelled["output"][0]["content"][0]["text"] == "so far, and a bit"
    assert cancelled == shown.json() == again.json()


async def test_a_whole_answer_that_is_cancelled_says_so():
    """It is no error: the object has what was said."""
    service = ScriptedService()
    async with serving(service) as server, trio.open_nursery() as nursery:
        bodies: list[dict[str, Any]] = []

        async def whole() -> None:
            bodies.append(await ask(server))

        async def cancel() -> None:
            await server.client.post(f"{PATH}/resp_r1/cancel")

        nursery.start_soon(whole)
        item = await service.opened()
        say(item, "a")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(cancel)
        while not service.cancelled:
            await trio.lowlevel.checkpoint()
        assert item.cancel.why is not None
        fail(item, item.cancel.why)

    assert bodies[0]["status"] == "cancelled"
    assert bodies[0]["output"][0]["content"][0]["text"] == "a"


async def test_a_cancel_does_not_wait_for_a_stream_that_nobody_reads(monkeypatch):
    """Its answer comes in time, and says what was asked for."""
    monkeypatch.setattr("flashrt.http.responses.CANCEL_WAIT_S", 0.01)
    service = ScriptedService()
    async with serving(service) as server:
        stream = await server.ask({"input": "hi", "stream": True}, PATH)
        await service.opened()
        answer = await server.client.post(f"{PATH}/resp_r1/cancel")
        await hang_up(stream)
        await service.left()

    assert answer.json()["status"] == "cancelled"


async def test_who_leaves_an_answer_leaves_nothing_behind():
    """It runs no more, and was never whole."""
    service = ScriptedService()
    async with serving(service) as server:
        stream = await server.ask({"input": "hi", "stream": True}, PATH)
        item = await service.opened()
        say(item, "a")
        await read_until(stream, b"output_text.delta")
        await hang_up(stream)
        await service.left()
        shown = await server.client.get(f"{PATH}/resp_r1")

    assert shown.status_code == 404


async def test_an_answer_that_is_deleted_while_it_runs_is_not_kept():
    """Its stream goes on."""
    service = ScriptedService()
    async with serving(service) as server:
        stream = await server.ask({"input": "hi", "stream": True}, PATH)
        item = await service.opened()
        await read_until(stream, b"response.in_progress")
        deleted = await server.client.delete(f"{PATH}/resp_r1")
        say(item, "a")
        finish(item)
        await read_until(stream, b"response.completed")
        await service.left()
        shown = await server.client.get(f"{PATH}/resp_r1")

    assert (deleted.status_code, shown.status_code) == (200, 404)


@pytest.mark.parametrize(
    ("reason", "status"), [(FinishReason.STOP, "completed"), (FinishReason.LENGTH, "incomplete")]
)
async def test_a_stream_over_a_socket_keeps_every_law(reason, status):
    """Headers, names of events, one end, and no terminator of another protocol."""

    def script(item: WorkItem) -> None:
        put(item, [ThinkingDelta("hm"), TextDelta("so")])
        finish(item, reason)

    async with serving(ScriptedService(script)) as server:
        answer = await server.client.post(PATH, json={"input": "hi", "stream": True})
        shown = await server.client.get(f"{PATH}/resp_r1")

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "[DONE]" not in answer.text
    final = read(answer.content)
    assert (final["status"], shown.json()) == (status, final)


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_are_of_the_text_however_late_its_reader_comes(stream):
    """What waits together is still told by what it came with."""

    def script(item: WorkItem) -> None:
        for delta, token_id in ((ThinkingDelta("T"), 84), (TextDelta("a"), 97)):
            item.sink.put(Output((delta,), (token_id,), (TokenLogprobs(-1.0, ()),)))
        finish(item)

    wish = {"input": "hi", "include": ["message.output_text.logprobs"], "stream": stream}
    async with serving(ScriptedService(script)) as server:
        answer = await server.client.post(PATH, json=wish)

    message = (read(answer.content) if stream else answer.json())["output"][-1]
    assert [one["token"] for one in message["content"][0]["logprobs"]] == ["a"]


async def test_a_failure_in_the_middle_is_the_protocols_own_end():
    """And is kept as what it was."""

    def script(item: WorkItem) -> None:
        say(item, "a")
        fail(item, EngineFailed("The step failed."))

    async with serving(ScriptedService(script)) as server:
        answer = await server.client.post(PATH, json={"input": "hi", "stream": True})
        shown = await server.client.get(f"{PATH}/resp_r1")

    assert [event["type"] for event in events(answer.content)].count("response.failed") == 1
    assert read(answer.content)["error"]["message"] == "The step failed."
    assert shown.json()["status"] == "failed"


async def test_silence_is_filled_with_an_event_of_the_protocol():
    """Codex's timer does not count comments."""
    service = ScriptedService()
    async with serving(service, heartbeat_s=0.01) as server:
        stream = await server.ask({"input": "hi", "stream": True}, PATH)
        item = await service.opened()
        told = await read_until(stream, b'"progress"')
        finish(item)
        await read_until(stream, b"response.completed")

    last = sse(told.decode() if told.endswith(b"\n\n") else told.decode().rpartition("data: ")[0])
    assert last[-1]["type"] in ("response.in_progress", "response.created")


async def test_a_prompt_that_is_too_long_is_refused_before_the_stream():
    """With the words and the code by which clients compact, and 400: Codex repeats a 413."""
    service = ScriptedService()
    service.refuse_with = PromptTooLong("This model's maximum context length is 9 tokens.")
    async with serving(service, overflow_status=413) as server:
        answer = await server.client.post(PATH, json={"input": "hi", "stream": True})

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert "maximum context length" in answer.json()["error"]["message"]


async def test_what_a_stream_said_is_not_told_again():
    """Refused by name."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        await ask(server)
        answer = await server.client.get(f"{PATH}/resp_r1?stream=true")

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream")


async def test_an_answer_is_whole_on_a_connection_that_closes():
    """Read to its end by a bare client."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        stream = await server.ask({"input": "hi", "stream": True}, PATH)
        text = await read_until(stream, b"response.completed")
        await stream.send_eof()
        text += await read_all(stream)

    assert text.count(b"event: response.completed") == 1


async def test_a_full_queue_says_503_and_when_to_come_back():
    """Codex gives up on a 429 at once, and waits as long as a 503 says."""
    service = ScriptedService(whole_answer("a"))
    service.refuse_with = QueueFull("full", retry_after_s=3)
    async with serving(service) as server:
        answer = await server.client.post(PATH, json={"input": "hi"})

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")
    assert answer.json()["error"]["code"] == "queue_full"
