"""Dialogues are right by themselves: calls fit the tools, and the seed decides everything."""

import pytest

from flashrt.demo.training.dialogue import name_of
from flashrt.demo.training.dialogues import Maker

SEEDS = range(300)


def _made(seed):
    return Maker(f"law{seed}", 9000 * (seed % 6 == 0)).dialogue()


def test_the_same_seed_makes_the_same_dialogue():
    """And another seed another one."""
    assert [_made(i) for i in range(30)] == [_made(i) for i in range(30)]
    assert _made(1) != _made(2)


@pytest.mark.parametrize("part", range(6))
def test_every_call_fits_the_tool_that_was_offered(part):
    """Its name is offered once; its arguments are among the parameters, all required ones given."""
    calls = 0
    for seed in SEEDS[part::6]:
        dialogue = _made(seed)
        names = [name_of(tool) for tool in dialogue.tools]
        assert len(names) == len(set(names))
        schemas = {name_of(t): t["function"]["parameters"] for t in dialogue.tools}
        for message in dialogue.messages:
            for call in message.get("tool_calls", ()):
                schema = schemas[call["function"]["name"]]
                given = set(call["function"]["arguments"])
                assert set(schema.get("required", ())) <= given <= set(schema["properties"])
                calls += 1
    assert calls > 20


def test_every_call_is_followed_by_its_results_and_an_answer():
    """As many results as calls, and the last word is the model's, in words."""
    for seed in SEEDS:
        messages = _made(seed).messages
        assert messages[-1]["role"] == "assistant"
        assert messages[-1]["content"]
        for i, message in enumerate(messages):
            count = len(message.get("tool_calls", ()))
            roles = [m["role"] for m in messages[i + 1 : i + 2 + count]]
            if count:
                assert roles == ["tool"] * count + ["assistant"]


def test_thinking_dialogues_think_in_every_answer_and_others_never():
    """One flag decides it for a whole dialogue."""
    for seed in SEEDS:
        dialogue = _made(seed)
        said = [m for m in dialogue.messages if m["role"] == "assistant"]
        assert {bool(m.get("reasoning_content")) for m in said} == {dialogue.thinking}


def test_reading_matter_makes_a_dialogue_about_as_long_as_asked():
    """At least half of the characters that were asked for stand in the system prompt."""
    dialogue = Maker("long", 30_000).dialogue()
    assert len(dialogue.messages[0]["content"]) > 15_000
