"""Responses on the real server: the official package, reuse from turn to turn, and cancels."""

import json
from typing import Any, Literal

import openai
import pydantic
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.demo import DEMO_PATH
from flashrt.engine.hybrid import HybridEngine
from flashrt.protocols.chat import read_chat
from flashrt.protocols.responses import read_responses
from tests.gate import GatedPerformer
from tests.protocols.conversations import as_chat, as_items, conversations
from tests.protocols.responses_reader import read
from tests.protocols.test_responses import NOTHING
from tests.scripted import ScriptedEngine, call_text, spoken, tools_on_offer
from tests.whole.server import ENDLESS, VOICE, Server, fake_engine, running_server
from tests.whole.watch import health, until

BASH = {
    "type": "function",
    "name": "bash",
    "description": "Runs a command.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    "strict": False,
}
TASK = "Run echo hi, then read README.md, then say what was printed."


def client(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="any", http_client=server.http, max_retries=0
    )


def block(response: Any) -> dict[str, Any]:
    """The `flashrt` block."""
    found: dict[str, Any] = response.model_extra["flashrt"]
    return found


@settings(max_examples=25)
@given(st.data(), conversations())
def test_a_conversation_has_the_prompt_ids_that_it_has_in_chat(data, turns):
    """With tools and thinking, in any of the spellings of real clients."""
    tool = {name: value for name, value in BASH.items() if name != "type"}
    chat = {"messages": as_chat(turns), "tools": [{"type": "function", "function": tool}]}
    items = {"input": data.draw(as_items(turns)), "tools": [BASH]}

    of_chat = VOICE.renderer.render(read_chat(json.dumps(chat).encode()).request)
    of_items = VOICE.renderer.render(read_responses(json.dumps(items).encode(), NOTHING).request)

    assert of_items.ids == of_chat.ids


@pytest.mark.parametrize("way", ["whole", "by id", "sealed", "summary"])
async def test_a_tool_loop_prefills_only_what_is_new(way):
    """However the conversation comes back, every turn goes on from the one before (G1)."""
    wish: dict[str, Any] = {"store": way == "by id"}
    if way == "sealed":
        wish["include"] = ["reasoning.encrypted_content"]
    if way in ("sealed", "summary"):
        wish["reasoning"] = {"summary": "auto"}
    engine = ScriptedEngine(VOICE.tokenizer)
    items: list[Any] = [{"role": "user", "content": TASK}]
    said: list[str] = []
    sessions: set[str] = set()
    async with running_server(engine) as server:
        api = client(server)
        sent, previous = list(items), openai.omit
        for turn in range(3):
            async with api.responses.stream(
                model="m", input=sent, tools=[BASH], previous_response_id=previous, **wish
            ) as stream:
                whole = await stream.get_final_response()
            assert (block(whole)["prefix_action"] == "rebuild") == (turn == 0)
            assert turn == 0 or block(whole)["new_prefill_tokens"] < 40
            said.append(whole.output_text)
            sessions.add(block(whole)["session"])
            items += [item.model_dump(exclude_none=True) for item in whole.output]
            results = [
                {"type": "function_call_output", "call_id": call.call_id, "output": "hi"}
                for call in whole.output
                if call.type == "function_call"
            ]
            items += results
            if way == "by id":
                sent, previous = results, whole.id
            else:
                sent = items
    assert len(sessions) == 1
    assert said[:2] == ["", ""]
    assert said[2].startswith("It printed: hi")


async def test_a_conversation_changes_its_protocol_and_is_the_same_one():
    """A turn over Responses, the next over chat: the answer is found again as it was sampled."""
    async with running_server(ScriptedEngine(VOICE.tokenizer)) as server:
        api = client(server)
        first = await api.responses.create(model="m", input=TASK, tools=[BASH])
        thought, call = first.output
        tool = {name: value for name, value in BASH.items() if name != "type"}
        said = {
            "role": "assistant",
            "reasoning_content": thought.content[0].text,
            "tool_calls": [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
            ],
        }
        second = await api.chat.completions.create(
            model="m",
            messages=[
                {"role": "user", "content": TASK},
                said,
                {"role": "tool", "tool_call_id": call.call_id, "content": "hi"},
            ],
            tools=[{"type": "function", "function": tool}],
        )
    assert block(second)["prefix_action"] in ("append", "message_append")
    assert block(second)["new_prefill_tokens"] < 40


PATCH = '*** Begin Patch\n+ a "quoted" line\n*** End Patch'


class PatchingEngine(ScriptedEngine):
    """Edits by a custom tool, once; then says so."""

    def says(self, prompt: str) -> str:
        if "<tool_response>" in prompt:
            return spoken(prompt, "Done.")
        return spoken(prompt, call_text(tools_on_offer(prompt)["edits__patch"], ("input",), PATCH))


async def test_a_custom_tool_in_a_group_is_called_and_answered():
    """The text comes exactly, as it grows; sent back, it is what the model said (G1)."""
    patch = {"type": "custom", "name": "patch", "description": "Edits files."}
    group = {"type": "namespace", "name": "edits", "description": "Edits.", "tools": [patch]}
    items: list[Any] = [{"role": "user", "content": "edit"}]
    wish = {"model": "m", "tools": [group], "store": False}
    async with running_server(PatchingEngine(VOICE.tokenizer)) as server:
        asked = {**wish, "input": items, "stream": True}
        answer = await server.http.post("/v1/responses", json=asked)
        first = read(answer.content)
        (call,) = [item for item in first["output"] if item["type"] == "custom_tool_call"]
        output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "ok"}
        items += [*first["output"], output]
        second = (await server.http.post("/v1/responses", json={**wish, "input": items})).json()
    assert (call["namespace"], call["name"], call["input"]) == ("edits", "patch", PATCH)
    assert answer.text.count("response.custom_tool_call_input.delta") > 4
    assert second["output"][-1]["content"][0]["text"] == "Done."
    assert second["flashrt"]["prefix_action"] in ("append", "message_append")
    assert second["flashrt"]["new_prefill_tokens"] < 40


class Line(pydantic.BaseModel):
    """What is asked for."""

    line: Literal[1, 2, 3]


async def test_the_packages_helpers_on_the_demo_model():
    """Structured output is parsed; what runs out of tokens is incomplete; refusals are typed."""
    engine = HybridEngine.load(
        DEMO_PATH,
        max_seq=2048,
        sampleable=VOICE.tokenizer.vocab_size,
        threads=1,
        progress=False,
    )
    plain = {"enable_thinking": False}
    schema = {
        "type": "object",
        "properties": {"line": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["line"],
        "additionalProperties": False,
    }
    async with running_server(engine) as server:
        api = client(server)
        shaped = await api.responses.parse(
            model="m", input="a line", text_format=Line, extra_body=plain, max_output_tokens=40
        )
        forced = await api.responses.create(
            model="m",
            input="look",
            tools=[{**BASH, "name": "read", "parameters": schema}],
            tool_choice={"type": "function", "name": "read"},
            extra_body=plain,
            max_output_tokens=60,
        )
        short = await api.responses.create(
            model="m", input="talk", max_output_tokens=2, extra_body={**plain, **ENDLESS}
        )
        with pytest.raises(openai.BadRequestError) as refused:
            await api.responses.create(model="m", input="x", tool_choice="required")
        with pytest.raises(openai.NotFoundError):
            await api.responses.retrieve("resp_none")
        with pytest.raises(openai.BadRequestError) as lost:
            await api.responses.create(model="m", input="x", previous_response_id="resp_none")
    assert shaped.output_parsed in (Line(line=1), Line(line=2), Line(line=3))
    (call,) = forced.output
    assert 1 <= json.loads(call.arguments)["line"] <= 9
    assert (short.status, short.usage.output_tokens) == ("incomplete", 2)
    assert refused.value.param == "tool_choice"
    assert lost.value.code == "previous_response_not_found"


async def test_an_answer_is_shown_listed_and_forgotten_by_the_package():
    """`input_tokens.count`, `retrieve`, `input_items.list` and `delete`."""
    async with running_server(ScriptedEngine(VOICE.tokenizer)) as server:
        api = client(server)
        counted = await api.responses.input_tokens.count(model="m", input="hello")
        made = await api.responses.create(model="m", input="hello")
        shown = await api.responses.retrieve(made.id)
        listed = [item async for item in api.responses.input_items.list(made.id)]
        await api.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            await api.responses.retrieve(made.id)
    assert shown == made
    assert counted.input_tokens == made.usage.input_tokens
    assert [item.content[0].text for item in listed] == ["hello"]


async def test_a_cancel_ends_what_runs_and_what_waits(tmp_path):
    """The running one at its next boundary, the waiting one at once; others go on as they were."""
    log = tmp_path / "log"
    gate = GatedPerformer(fake_engine())
    wish = {"model": "m", "input": "talk", "stream": True, "max_output_tokens": 2000, **ENDLESS}
    streams: dict[str, bytes] = {}
    names: dict[str, str] = {}
    cancelled: dict[str, Any] = {}
    async with running_server(gate.engine, performer=gate, request_log=log) as server:

        async def listen(which: str) -> None:
            async with server.http.stream("POST", "/v1/responses", json=wish) as answer:
                streams[which] = b""
                async for piece in answer.aiter_bytes():
                    streams[which] += piece
                    if which not in names and b'"id":"resp_' in streams[which]:
                        found = streams[which].partition(b'"id":"resp_')[2].partition(b'"')[0]
                        names[which] = f"resp_{found.decode()}"

        async def cancel(which: str) -> None:
            cancelled[which] = await client(server).responses.cancel(names[which])

        async def leaving() -> bool:
            return (await health(server))["running"]["leaving"]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, "running")
            await until(lambda: "running" in names)
            gate.allow(3)
            await until(lambda: b"_text.delta" in streams["running"])
            nursery.start_soon(listen, "waiting")
            await until(lambda: "waiting" in names)
            await cancel("waiting")
            nursery.start_soon(cancel, "running")
            await until(leaving)
            gate.allow(1000)
        now = await health(server)
        after = await server.chat()
    for which, shown in cancelled.items():
        final = read(streams[which])
        assert final["status"] == shown.status == "cancelled"
        assert final["output"] == json.loads(shown.model_dump_json(exclude_none=True))["output"]
    assert read(streams["waiting"])["output"] == []
    assert read(streams["running"])["output"] != []
    assert now["running"] is None
    assert after["choices"][0]["finish_reason"]
    states = [json.loads(line)["terminal_state"] for line in log.read_text().splitlines()]
    assert sorted(states) == ["CANCELLED", "CANCELLED", "DONE"]


async def test_who_leaves_a_stream_harms_nobody():
    """The package closes its stream; the next answer is a normal one."""
    async with running_server(fake_engine()) as server:
        api = client(server)
        stream = await api.responses.create(
            model="m", input="talk", stream=True, max_output_tokens=3000, extra_body=ENDLESS
        )
        async for event in stream:
            if event.type.endswith("_text.delta"):
                break
        await stream.close()
        after = await api.responses.create(model="m", input="go", max_output_tokens=3)
    assert after.usage.output_tokens <= 3
