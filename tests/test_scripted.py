"""The plot of the scripted engine, played over HTTP as an agent plays it."""

import json

from tests.scripted import COMMANDS, ScriptedEngine, call_text
from tests.whole.server import VOICE, running_server

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"}},
                "required": [key],
            },
        },
    }
    for name, key in (("bash", "command"), ("read_file", "path"))
]


async def play(server, **wish):
    """An agent's loop: ask, run the calls, send everything back, until there is only text."""
    messages = [{"role": "user", "content": "Run echo hi, read README.md, say what was printed."}]
    reports = []
    while True:
        body = {"model": "any", "messages": messages, "tools": TOOLS, **wish}
        answer = (await server.http.post("/v1/chat/completions", json=body)).json()
        message, reports = answer["choices"][0]["message"], [*reports, answer["flashrt"]]
        messages.append(message)
        if answer["choices"][0]["finish_reason"] == "stop":
            return messages, reports
        for call in message["tool_calls"]:
            result = {"role": "tool", "tool_call_id": call["id"], "content": "hi"}
            messages.append(result)


async def test_an_agent_runs_reads_and_answers_and_each_turn_is_appended():
    """Calls come back as they were sampled, so every further turn reads only what is new."""
    async with running_server(ScriptedEngine(VOICE.tokenizer)) as server:
        messages, reports = await play(server)
    calls = [call["function"] for m in messages for call in m.get("tool_calls") or ()]
    assert [call["name"] for call in calls] == ["bash", "read_file"]
    assert [json.loads(call["arguments"]) for call in calls] == [
        {"command": "echo hi"},
        {"path": "README.md"},
    ]
    assert "hi" in messages[-1]["content"]
    assert [report["prefix_action"] for report in reports] == ["rebuild", "append", "append"]


async def test_without_thinking_the_plot_is_the_same():
    """The empty think block is the template's, not the model's."""
    async with running_server(ScriptedEngine(VOICE.tokenizer)) as server:
        messages, _ = await play(server, enable_thinking=False)
    assert len(messages) == 6
    assert not any(m.get("reasoning_content") for m in messages)


def test_a_call_fills_what_is_required_as_its_schema_says():
    """A list where the command belongs into one, and one of a closed choice."""
    properties = {
        "commands": {"type": "array", "items": {"type": "string"}},
        "risk": {"type": "string", "enum": ["low", "high"]},
    }
    parameters = {"properties": properties, "required": ["risk", "commands"]}
    said = call_text({"name": "run_commands", "parameters": parameters}, COMMANDS, "echo hi")
    assert '<parameter=commands>\n["echo hi"]\n</parameter>' in said
    assert "<parameter=risk>\nlow\n</parameter>" in said
