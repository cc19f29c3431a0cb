"""Turns: whole or not at all."""

import pytest

from flashrt.client.conversation import SHOWN_CHARS_MAX, Conversation
from flashrt.client.screen import Screen
from flashrt.client.server import Server
from flashrt.client.tools import TOOLS, Tool, Toolbox
from flashrt.errors import NoAnswer
from tests.client.canned import canned, text, tool_call


def conversation(url: str, tools: tuple[Tool, ...] = TOOLS, **wish) -> Conversation:
    """With a server of canned answers."""
    made = {"wish": {"model": "any"}, "rounds_max": 3, **wish}
    return Conversation(Server(url), Screen(), Toolbox(lambda _: True, tools), **made)


def roles(talk: Conversation) -> list[str]:
    """Who said something."""
    return [message["role"] for message in talk.messages]


def test_a_turn_is_a_question_its_rounds_and_an_answer():
    """Each further request has all that was said before."""
    with canned(tool_call("calculate", expression="6*7"), text("It is 42.")) as server:
        talk = conversation(server.url, system="Be brief.")
        talk.turn("What is 6*7?")

    assert roles(talk) == ["system", "user", "assistant", "tool", "assistant"]
    assert talk.messages[3]["content"] == "42"
    assert server.bodies[1]["messages"] == talk.messages[:4]


def test_rounds_are_bounded(capsys):
    """A model that calls for ever gives the word back to the person; the next turn can go on."""
    with canned(*[tool_call("calculate", expression="1")] * 3, text("done")) as server:
        talk = conversation(server.url)
        talk.turn("go")
        assert "stopped after 3 rounds of tools" in capsys.readouterr().err
        assert roles(talk) == ["user", *["assistant", "tool"] * 3]
        talk.turn("go on")

    assert talk.messages[-1]["content"] == "done"


def test_a_turn_that_breaks_off_leaves_nothing():
    """Also if that happens in a later round."""
    with canned(tool_call("calculate", expression="1")) as server:
        talk = conversation(server.url)
        with pytest.raises(NoAnswer):
            talk.turn("go")

    assert talk.messages == []


def test_what_was_wished_is_in_every_request():
    """Model and limits; thinking is named whether it is on or off, tools only if there are any."""
    with canned(text("a"), text("b")) as server:
        talk = conversation(server.url, tools=(), wish={"model": "m", "max_tokens": 7})
        talk.turn("one")
        talk.thinks = True
        talk.turn("two")

    assert [body["enable_thinking"] for body in server.bodies] == [False, True]
    assert {(body["model"], body["max_tokens"]) for body in server.bodies} == {("m", 7)}
    assert not any("tools" in body for body in server.bodies)


def test_a_long_result_is_shown_by_its_beginning(capsys):
    """The model gets all of it, the person an impression."""
    echo = Tool("echo", "text", "Repeat.", lambda text: text)
    long = "x" * (SHOWN_CHARS_MAX + 1)
    with canned(tool_call("echo", text=long), text("done")) as server:
        talk = conversation(server.url, tools=(echo,))
        talk.turn("go")

    assert talk.messages[2]["content"] == long
    assert f"\n{long[:-1]} …\n" in capsys.readouterr().err
