"""What is told of a session is what its next turn will find."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.policy.session_report import reported
from flashrt.policy.turn import Planned
from tests.policy.turns import ROOM, Server, opening, said

SYSTEM = opening(1, 2)
talks = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=8)


def talked(budget, talk):
    """Three conversations in turns of `talk`; some are of another namespace between them."""
    server, transcripts = Server(budget), {}
    for number, aside in talk:
        prompt = (*transcripts.get(number, opening(number + 5)), *said(10 + number))
        served = server.serve(prompt)
        transcripts[number] = (*prompt, *served.ids)
        if aside:
            server.serve(said(30), namespace="b")
    return server, transcripts


@given(talks, st.sampled_from([0, 700, ROOM]))
@settings(max_examples=40)
def test_the_next_message_begins_with_what_is_told(talk, budget):
    """Of every session: the action, and how many tokens are not computed again."""
    server, transcripts = talked(budget, talk)
    for transcript in transcripts.values():
        (session,) = (
            s for s in server.policy.sessions.newest("a") if tuple(s.journal.ids) == transcript
        )
        told = reported(server.policy, session)
        plan = server.serve((*transcript, *said(40))).plan
        told_of = {"message_append": "append"}.get(plan.action.value, plan.action.value)
        assert (told.next_turn, told.reusable_tokens) == (told_of, plan.cached_tokens)


def test_boundaries_and_states_are_told_in_their_order():
    """Boundaries oldest first and counted back from the end, states deepest first."""
    server = Server()
    transcript = SYSTEM
    for number in range(3):
        transcript = (*transcript, *said(number + 3))
        served = server.serve(transcript)
        transcript = (*transcript, *served.ids)
    session = server.policy.sessions.get(served.of(Planned)[0].session)
    told = reported(server.policy, session)
    assert [end.turns for end in told.boundaries] == [3, 2, 1, 0]
    assert [end.tokens for end in told.boundaries] == sorted(e.tokens for e in told.boundaries)
    assert all(end.held for end in told.boundaries)
    assert [s.tokens for s in told.states] == sorted((s.tokens for s in told.states), reverse=True)
    assert {state.tier for state in told.states} == {"device"}
    brief = reported(server.policy, session, whole=False)
    assert (brief.states, brief.boundaries) == (None, None)
    assert (brief.tokens, brief.turns) == (told.tokens, 3)


def test_a_boundary_whose_state_is_gone_is_told_as_such():
    """It can be gone back to all the same."""
    server = Server()
    served = server.serve((*SYSTEM, *said(3)))
    session = server.policy.sessions.get(served.of(Planned)[0].session)
    for entry in server.policy.store.of_session(session.name):
        server.policy.store.drop(entry)
    told = reported(server.policy, session)
    assert [end.held for end in told.boundaries] == [True, False]
    assert (told.hot, told.next_turn) == (True, "append")


@pytest.mark.parametrize("pinned", [True, False])
def test_a_pin_is_told(pinned):
    """Of the state that is pinned, and of no other."""
    server = Server()
    served = server.serve((*SYSTEM, *said(3)), pin=pinned)
    session = server.policy.sessions.get(served.of(Planned)[0].session)
    told = reported(server.policy, session)
    assert [state.kind for state in told.states if state.pinned] == ["system"] * pinned
