"""A streamed answer has the key of the message that clients make of it."""

import json
from typing import Any

import pytest

from flashrt.chat.outline import PartKind
from flashrt.chat.visible import Visible, answer_key
from tests.chat.talks import ASK, prompt
from tests.chat.transcript import new_answer
from tests.chat.vocabulary import ids

CALL = "<tool_call>\n<function=run>\n<parameter=command>\nls ä\n</parameter>\n"
LIMIT = "<parameter=limit>\n3\n</parameter>\n</function>\n</tool_call>"
WORDS = "I  look.\n\n"


def spoken(text: str, **options: Any) -> Visible:
    answer = new_answer(**options)
    answer.feed(ids(text))
    return answer.visible


def returned(message: dict[str, Any], by: str = "demo"):
    outline = prompt(ASK, {"role": "assistant", **message}, by=by).outline
    assert outline is not None
    (part,) = [part for part in outline.parts if part.kind is PartKind.ANSWER]
    return part


def calls(arguments: str) -> list[dict[str, Any]]:
    return [{"id": "x", "type": "function", "function": {"name": "run", "arguments": arguments}}]


ARGUMENTS = '{"command": "ls ä", "limit": 3}'
COMPACT = json.dumps(json.loads(ARGUMENTS), separators=(",", ":"), ensure_ascii=False)
WITH_INDEX = [{**calls(ARGUMENTS)[0], "index": 0}]
SPELLINGS = {
    "opencode": {"content": "", "reasoning_content": "Hm", "tool_calls": calls(COMPACT)},
    "cn": {"content": "", "tool_calls": calls(COMPACT)},
    "cline": {"content": None, "reasoning_content": "Hm", "tool_calls": calls(COMPACT)},
    "vibe": {"reasoning_content": "Hm", "tool_calls": WITH_INDEX},
    "qwen": {
        "content": "",
        "reasoning_content": "Hm",
        "reasoning": "Hm",
        "tool_calls": calls(COMPACT),
    },
    "as parts": {"content": [{"type": "thinking", "thinking": "Hm"}], "tool_calls": calls(COMPACT)},
}


@pytest.mark.parametrize("message", SPELLINGS.values(), ids=SPELLINGS)
def test_an_answer_that_comes_back_has_the_streamed_ones_key(message: dict[str, Any]):
    """A call without text, in every client's spelling."""
    visible = spoken(f"<think>\nHm\n</think>\n\n{CALL}{LIMIT}<|im_end|>")
    part = returned(message)

    ((name, arguments),) = visible.calls
    assert (name, json.loads(arguments)) == ("run", json.loads(ARGUMENTS))
    assert part.key == visible.key()
    assert part.reasoning in ("", visible.reasoning.strip())


@pytest.mark.parametrize("by", ["demo", "verbatim"])
def test_text_that_comes_back_exact_has_the_same_key(by: str):
    """With a template that strips it and with one that does not."""
    visible = spoken(f"{WORDS}é🎈<|im_end|>", strips_content=by == "demo")

    assert returned({"content": visible.content}, by).key == visible.key()


def test_blanks_count_only_for_a_template_that_shows_them():
    """They are part of the text there."""
    assert Visible(" x\n").key() == Visible("x").key()
    assert Visible(" x\n", strips=False).key() != Visible("x", strips=False).key()


def test_a_call_that_was_cut_short_is_known_again():
    """The client sends back the piece of JSON that it has."""
    visible = spoken(f"<think>\n</think>\n\n{CALL}", max_tokens=len(ids(CALL)))
    ((name, arguments),) = visible.calls

    with pytest.raises(json.JSONDecodeError):
        json.loads(arguments)
    assert returned({"content": "", "tool_calls": calls(arguments)}).key == visible.key()
    assert name == "run"


def test_thinking_is_in_no_key():
    """Clients drop it."""
    assert Visible("x", reasoning="a").key() == Visible("x").key()


def test_what_was_said_is_visible_at_any_time():
    """In the middle of an answer, too."""
    answer = new_answer()
    answer.feed(ids("<think>\nHm"))
    assert answer.visible == Visible("", (), "Hm")
    answer.feed(ids("</think>\n\nHi"))
    assert answer.visible == Visible("Hi", (), "Hm")


def test_text_never_passes_for_a_call():
    """Nor a call for two."""
    assert answer_key("ab", "") != answer_key("a", "b")
    assert Visible("", (("f", "{}"),)).key() != Visible("", (("f", "{}"),) * 2).key()


def test_arguments_too_deep_for_json_have_a_key():
    """They are text then, like all that is no JSON."""
    deep = '{"a": ' * 100_000 + "1" + "}" * 100_000

    assert Visible("", (("f", deep),)).key() != Visible("", (("f", deep[1:]),)).key()
