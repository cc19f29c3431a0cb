"""The turn loop behind an answer: its end is told first, and stands."""

import pytest

from flashrt.chat.prompt import Prompt
from flashrt.engine.protocol import SamplingParams
from flashrt.fsm.lifecycle import LifeEvent
from flashrt.policy.capsule_index import CapsuleIndex
from flashrt.policy.journal import Journal
from flashrt.policy.turn import Answered, Ended, Saved, Turn
from tests.answers import IdAnswer
from tests.policy.turns import Flag, Server, opening, said


@pytest.fixture
def long_ids_read(monkeypatch):
    """How often all ids of a journal were read, or the store was asked for a state of them."""
    read = []
    for owner, name in ((Journal, "packed"), (CapsuleIndex, "heading")):
        monkeypatch.setattr(owner, name, counting(getattr(owner, name), read))
    return read


def counting(whole, read):
    """The same property or method, which notes that it was used."""
    used = whole.fget if isinstance(whole, property) else whole

    def noting(*arguments):
        read.append(used.__name__)
        return used(*arguments)

    return property(noting) if isinstance(whole, property) else noting


def turn_of(prompt, answer):
    return Turn(Prompt.from_ids(prompt), SamplingParams(), answer, Flag(), namespace="a")


def test_no_token_and_no_end_waits_for_work_that_grows_with_the_context(long_ids_read):
    """From the first id to the end told nothing goes over the ids; all of that comes behind it."""
    server = Server()
    first = server.serve(opening(1, 2) + said(*[3] * 300))
    prompt = (*opening(1, 2), *said(*[3] * 300), *first.ids, *said(4, 5))
    answering, whole = False, 0
    batches = server.loop.run(turn_of(prompt, IdAnswer(20)), server.performer.perform)
    for events in batches:
        whole += answering and len(long_ids_read)
        answering = answering or any(isinstance(event, Answered) for event in events)
        long_ids_read.clear()
        if any(isinstance(event, Ended) for event in events):
            break
    assert answering
    assert whole == 0
    list(batches)
    assert {"packed", "heading"} <= {*long_ids_read}


def test_a_turn_that_is_dropped_behind_its_end_is_known_all_the_same():
    """What its client has been told stands: the next turn goes on from there."""
    server = Server()
    answer = IdAnswer(3)
    batches = server.loop.run(turn_of(said(1, 2), answer), server.performer.perform)
    while not any(isinstance(event, Ended) for event in next(batches)):
        pass
    batches.close()

    longer = (*said(1, 2), *answer.ids, *said(4))
    again = server.serve(longer)
    assert again.action == "append"
    assert again.ids == Server().serve(longer).ids
    assert len(server.policy.sessions) == 1
    assert len(server.policy.hot.session.ends) == 2


def test_an_end_that_cannot_be_noted_is_an_end_and_costs_the_next_turn_time(monkeypatch):
    """The fault is told behind it, nothing is hot, and the next turn reads as cold."""
    server = Server(0)

    def broken(*_):
        raise RuntimeError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(server.policy.memory, "note_answer", broken)
        events = server.serve(said(1, 2)).events
    assert [type(event) for event in events[-2:]] == [Ended, Saved]
    assert events[-2].event is LifeEvent.FINISH
    assert "no room" in events[-1].error
    assert not server.loop.is_hot
    assert server.serve(said(1, 2)).ids == Server().serve(said(1, 2)).ids
