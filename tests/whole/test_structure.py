"""Shapes over HTTP on the demo model, which knows none of them: only what is enforced fits."""

import json
from typing import Literal

import openai
import pytest
from pydantic import BaseModel, ConfigDict

from tests.http.vocabulary import sse
from tests.protocols.vocabulary import joined_message
from tests.scripted import ScriptedEngine
from tests.whole.server import VOICE, chat_body, running_server
from tests.whole.talk import demo_engine

CHAT = "/v1/chat/completions"
THOUGHTS = [{"enable_thinking": False}, {"thinking_budget": 3}]
SAMPLINGS = [{"temperature": 0}, {"temperature": 1, "top_k": 0, "top_p": 1, "seed": 4}]
WAYS = [
    (THOUGHTS[0], SAMPLINGS[0]),
    pytest.param(THOUGHTS[1], SAMPLINGS[1], marks=pytest.mark.slow),
    pytest.param(THOUGHTS[0], SAMPLINGS[1], marks=pytest.mark.slow),
    pytest.param(THOUGHTS[1], SAMPLINGS[0], marks=pytest.mark.slow),
]


class Paint(BaseModel):
    """A small object whose every value is bounded."""

    model_config = ConfigDict(extra="forbid")
    colour: Literal["red", "green"]
    coats: Literal[1, 2]


def json_format(schema, name="paint"):
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}


def function(name, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    function("ls"),
    function(
        "read",
        path={"type": "string", "maxLength": 6},
        deep={"type": "boolean"},
        mode={"enum": ["text", "bytes"]},
    ),
]
NAMED = {"type": "function", "function": {"name": "read"}}


@pytest.fixture(scope="module")
def engine():
    return demo_engine(max_seq=1024)


async def answers(server, **wish):
    """The same request buffered without drafts and streamed with them: both are one answer."""
    body = chat_body("go", **{"max_tokens": 160, **wish})
    plain = await server.chat("go", **{**body, "flashrt_draft_tokens": 0})
    drafted = {**body, "flashrt_draft_tokens": 4, "stream": True}
    *chunks, done = sse((await server.http.post(CHAT, json=drafted)).text)
    assert done == "[DONE]"
    ids = plain["flashrt"]["completion_token_ids"]
    assert ids == chunks[-1]["flashrt"]["completion_token_ids"]
    (choice,) = plain["choices"]
    streamed = joined_message(chunks)
    assert streamed["content"] == (choice["message"]["content"] or "")
    assert streamed["finish_reason"] == choice["finish_reason"]
    return choice, streamed


@pytest.mark.parametrize(("thought", "sampling"), WAYS)
async def test_text_is_a_value_of_its_schema(engine, thought, sampling):
    """Whatever the model thinks, however it samples and drafts: it fits, and ends by itself."""
    wish = {"response_format": json_format(Paint.model_json_schema()), **thought, **sampling}
    async with running_server(engine) as server:
        choice, _ = await answers(server, **wish)
    Paint.model_validate_json(choice["message"]["content"])
    assert choice["finish_reason"] == "stop"
    assert bool(choice["message"].get("reasoning_content")) == ("thinking_budget" in thought)


@pytest.mark.parametrize(("thought", "sampling"), WAYS)
async def test_a_named_tool_is_called_with_values_of_its_types(engine, thought, sampling):
    """One complete call, of that tool and no other."""
    wish = {"tools": TOOLS, "tool_choice": NAMED, **thought, **sampling}
    async with running_server(engine) as server:
        choice, streamed = await answers(server, **wish)
    (call,) = choice["message"]["tool_calls"]
    (same,) = streamed["tool_calls"]
    assert call["function"] == same["function"]
    assert call["function"]["name"] == "read"
    arguments = json.loads(call["function"]["arguments"])
    assert isinstance(arguments["path"], str)
    assert len(arguments["path"]) <= 6
    assert isinstance(arguments["deep"], bool)
    assert arguments["mode"] in ("text", "bytes")
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None


@pytest.mark.parametrize("thought", THOUGHTS)
async def test_a_required_call_is_one_of_those_on_offer(engine, thought):
    """With `parallel_tool_calls` false exactly one."""
    wish = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, **thought}
    async with running_server(engine) as server:
        choice, _ = await answers(server, **wish, **SAMPLINGS[1])
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] in ("ls", "read")
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(("leaning", "finish"), [(100, "tool_calls"), (-100, "stop")])
async def test_beside_a_schema_the_model_may_still_call(engine, leaning, finish):
    """Tools on offer and a `response_format`: JSON or calls, as the model would, and no text."""
    (call_token,) = VOICE.tokenizer.encode("<tool_call>")
    wish = {
        "tools": TOOLS[:1],
        "response_format": json_format({"enum": ["done"]}),
        "parallel_tool_calls": False,
        "enable_thinking": False,
        "logit_bias": {str(call_token): leaning},
    }
    async with running_server(engine) as server:
        body = await server.chat("go", **wish, max_tokens=60, temperature=0)
    (choice,) = body["choices"]
    assert choice["finish_reason"] == finish
    if finish == "stop":
        assert choice["message"]["content"] == '"done"'
    else:
        (call,) = choice["message"]["tool_calls"]
        assert call["function"] == {"name": "ls", "arguments": "{}"}


async def test_the_openai_package_parses_into_a_model(engine):
    """Its `parse()` sends a schema in strict form and gets an object of the class."""
    async with running_server(engine) as server:
        api = openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="any", http_client=server.http, max_retries=0
        )
        parsed = await api.chat.completions.parse(
            model="any",
            messages=[{"role": "user", "content": "paint"}],
            response_format=Paint,
            temperature=0,
            max_tokens=200,
            extra_body={"enable_thinking": False},
        )
    assert isinstance(parsed.choices[0].message.parsed, Paint)


async def test_under_tool_choice_none_the_prompt_keeps_its_tools_and_calls_are_text():
    """The next turn with "auto" finds the same prefix; nothing is executed meanwhile."""
    tools = [function("bash", command={"type": "string"})]
    async with running_server(ScriptedEngine(VOICE.tokenizer)) as server:
        auto, none = [
            await server.chat("go", tools=tools, tool_choice=choice, max_tokens=200)
            for choice in ("auto", "none")
        ]
    assert none["flashrt"]["prompt_token_ids"] == auto["flashrt"]["prompt_token_ids"]
    (choice,) = none["choices"]
    assert "tool_calls" not in choice["message"]
    assert "<function=bash>" in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    assert auto["choices"][0]["finish_reason"] == "tool_calls"


REFUSED = {
    "a keyword that cannot be enforced": (
        {"response_format": json_format({"type": "array", "uniqueItems": True})},
        "response_format.json_schema.schema",
    ),
    "a type that does not exist": (
        {"response_format": json_format({"type": "triangle"})},
        "response_format.json_schema.schema",
    ),
    "a tool's schema that cannot be enforced": (
        {
            "tools": [function("f", x={"type": "array", "uniqueItems": True})],
            "tool_choice": "required",
        },
        "tools",
    ),
    "parameters that are no schema": (
        {
            "tools": [{"function": {"name": "f", "parameters": {"required": 1}}}],
            "tool_choice": "required",
        },
        "tools",
    ),
    "an unknown tool": ({"tools": TOOLS[:1], "tool_choice": NAMED}, "tool_choice.function.name"),
}


async def test_what_cannot_be_enforced_is_a_400_that_names_the_field():
    """Never ignored, and the server goes on."""
    async with running_server(ScriptedEngine(VOICE.tokenizer)) as server:
        for name, (wish, param) in REFUSED.items():
            answer = await server.http.post(CHAT, json=chat_body("x", **wish))
            assert (answer.status_code, answer.json().get("error", {}).get("param")) == (
                400,
                param,
            ), name
        await server.chat("still there")


DRAFT = (
    "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"
)


class ThinksAloud(ScriptedEngine):
    """Ends inside its think block, with a call in it."""

    def says(self, prompt):
        """Never closes its thinking."""
        return f"I run it.\n{DRAFT}<|im_end|>"


@pytest.mark.parametrize(("setting", "calls"), [("take_last", 1), ("ignore", 0)])
async def test_a_call_inside_thinking_is_taken_or_not_as_the_server_is_told(setting, calls):
    """--calls-in-thinking: a model that forgot to close its thinking, or only a thought."""
    engine = ThinksAloud(VOICE.tokenizer)
    async with running_server(engine, calls_in_thinking=setting) as server:
        body = chat_body(
            "list", max_tokens=200, tools=[function("bash", command={"type": "string"})]
        )
        answer = (await server.http.post("/v1/chat/completions", json=body)).json()
    (choice,) = answer["choices"]
    assert len(choice["message"].get("tool_calls") or ()) == calls
    assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
