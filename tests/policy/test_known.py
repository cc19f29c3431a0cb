"""Which conversations a soft drain goes on with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.prompt import Prompt
from flashrt.chat.request import AgentRequest
from flashrt.policy.known import OPENING_IDS, KnownConversations
from tests.whole.server import VOICE

SYSTEM = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "hello"}
WORDS = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), min_size=1)


def prompt(*messages):
    return VOICE.renderer.render(AgentRequest(model="", messages=messages))


def knowing(*seen, conversations_max=8):
    known = KnownConversations(conversations_max)
    for namespace, text, session in seen:
        known.see(namespace, text, session)
    return known


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3))
def test_a_conversation_is_known_by_its_opening_however_it_goes_on(turns):
    """No hint is needed, whatever was answered and asked since."""
    known = knowing(("a", prompt(SYSTEM, ASK), None))
    later = [
        {"role": role, "content": text}
        for answer, question in turns
        for role, text in (("assistant", answer), ("user", question))
    ]
    assert known.has("a", prompt(SYSTEM, ASK, *later), None)


@pytest.mark.parametrize(
    "other",
    [
        (SYSTEM, {"role": "user", "content": "hello there"}),
        ({"role": "system", "content": "Be long."}, ASK),
        (ASK,),
    ],
)
def test_another_opening_is_another_conversation(other):
    """Clients that share a system prompt are told apart by what they ask."""
    known = knowing(("a", prompt(SYSTEM, ASK), None))
    assert not known.has("a", prompt(*other), None)


@pytest.mark.parametrize(
    ("session", "is_known"), [("s", True), ("s/helper", True), ("t", False), (None, False)]
)
def test_a_session_that_its_client_names_is_known_whatever_it_says(session, is_known):
    """Also after it was compacted, and with its helpers."""
    known = knowing(("a", prompt(SYSTEM, ASK), "s"))
    other = prompt({"role": "user", "content": "A summary of what was said."})
    assert known.has("a", other, session) is is_known


def test_nothing_is_known_in_another_namespace():
    """G10, for placement too: nobody learns whom others talk to."""
    known = knowing(("a", prompt(SYSTEM, ASK), "s"))
    assert not known.has("b", prompt(SYSTEM, ASK), "s")


@pytest.mark.parametrize(("shared", "is_known"), [(OPENING_IDS, True), (OPENING_IDS - 1, False)])
def test_bare_ids_are_known_by_their_beginning(shared, is_known):
    """There are no turns to look at."""
    known = knowing(("a", Prompt.from_ids(range(100)), None))
    assert known.has("a", Prompt.from_ids([*range(shared), 7, 7, 7]), None) is is_known


def test_the_least_recently_seen_is_forgotten_first():
    """Bounded by conversations, of which each may have two names."""
    texts = [prompt({"role": "user", "content": f"question {i}"}) for i in range(3)]
    known = knowing(("a", texts[0], "s0"), ("a", texts[1], "s1"), conversations_max=2)
    known.see("a", texts[0], "s0")
    known.see("a", texts[2], "s2")
    assert [known.has("a", text, None) for text in texts] == [True, False, True]
    assert [known.has("a", Prompt.from_ids([1]), f"s{i}") for i in range(3)] == [True, False, True]
