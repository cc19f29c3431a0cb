"""What broke a prefix, said to whom it costs time."""

from flashrt.chat.prompt import Prompt
from flashrt.chat.request import AgentRequest
from flashrt.policy.miss import later_keys
from tests.policy.turns import Server
from tests.whole.server import VOICE


def prompt(*messages, **wish):
    return VOICE.renderer.render(AgentRequest(model="", messages=tuple(messages), **wish))


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def served(server, *messages, **wish):
    return server.serve(prompt(*messages, **wish))


def talkative():
    return Server(vocab_size=VOICE.tokenizer.vocab_size)


def test_one_digit_of_the_system_text_is_found():
    """Message, byte and kind, without any help of the client (P23)."""
    server = talkative()
    served(server, system("It is 12:00. Be brief."), user("hello there"))
    missed = served(server, system("It is 12:01. Be brief."), user("hello there"))
    assert missed.plan.miss == {"message": 0, "byte": 10, "kind": "system_text"}


def test_a_session_hint_finds_what_was_before():
    """Nothing else need be the same."""
    server = talkative()
    server.serve(prompt(user("one")), hint="h")
    missed = server.serve(prompt(user("two")), hint="h")
    assert missed.plan.miss == {"message": 0, "byte": 0, "kind": "message"}


def test_what_is_another_conversation_misses_nothing():
    """A first message of its own, and no name in common."""
    server = talkative()
    served(server, user("one"))
    assert served(server, user("two")).plan.miss is None


def test_a_state_that_is_gone_is_called_evicted():
    """The client changed nothing; the room was needed."""
    server = Server(budget=0, vocab_size=VOICE.tokenizer.vocab_size)
    first = server.serve(prompt(user("one")), hint="h")
    server.serve(prompt(user("other")), hint="o")
    answer = {"role": "assistant", "content": " ".join(map(str, first.ids))}
    missed = server.serve(prompt(user("one"), answer, user("more")), hint="h")
    assert missed.plan.miss == {"kind": "evicted"}


def test_bare_ids_have_no_parts():
    """There is nothing to tell them by."""
    assert later_keys(Prompt.from_ids((1, 2))) == set()
    assert later_keys(prompt(user("one")))
