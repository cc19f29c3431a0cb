"""Branching is free: an undo and a fork against a server that never made them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.policy.turn import Planned
from tests.policy.calling import Chat, lineage_of, standing
from tests.policy.turns import said

texts = st.lists(st.integers(3, 40), min_size=1, max_size=90).map(lambda ids: said(*ids))


@given(
    st.lists(texts, min_size=1, max_size=4),
    st.lists(texts, min_size=1, max_size=3),
    texts.map(lambda ids: (45, *ids)),
)
@settings(max_examples=25)
def test_what_was_undone_never_was(before, undone, after):
    """Path: a new message has the ids and the lineage of the run that never had those turns, and
    the session stands as if they had never been."""
    chat, twin = Chat(), Chat()
    for text in before:
        chat.say(text)
        twin.say(text)
    for text in undone:
        chat.say(text)
    report = chat.undo(len(undone))
    assert (report.hot, report.next_turn) == (True, "append")
    assert report.reusable_tokens == report.tokens == twin.session.journal.processed
    assert standing(chat.session) == standing(twin.session)

    new, never = chat.say(after), twin.say(after)

    assert new.ids == never.ids
    assert new.action == never.action == "append"
    assert new.plan.cached_tokens == never.plan.cached_tokens
    assert lineage_of(new) == lineage_of(never)
    assert standing(chat.session) == standing(twin.session)
    assert tuple(chat.server.engine.journal) == tuple(twin.server.engine.journal)


@pytest.mark.parametrize("parks", [False, True])
@given(st.lists(texts, min_size=4, max_size=4), st.permutations(range(8)))
@settings(max_examples=10)
def test_four_children_restore_one_boundary_and_do_not_disturb_each_other(parks, said_by, order):
    """Each says two things, in any order among the others: as if it were alone."""
    said_by = [(41 + number, *text) for number, text in enumerate(said_by)]
    parent = Chat()
    parent.say(said(3))
    parent.say(said(4))
    if parks:
        Chat(server=parent.server).say(said(9))
    shared = parent.agent.show(parent.name).tokens
    children = [parent.child(report.name) for report in parent.agent.fork(parent.name, 4)]
    firsts = {}
    for number in order:
        child = children[number % 4]
        served = child.say(said_by[number % 4])
        assert served.of(Planned)[0].session == child.name
        firsts.setdefault(number % 4, served)
    for number, child in enumerate(children):
        alone = Chat()
        alone.say(said(3))
        alone.say(said(4))
        first = alone.say(said_by[number])
        alone.say(said_by[number])
        assert firsts[number].plan.cached_tokens == shared
        assert firsts[number].ids == first.ids
        assert lineage_of(firsts[number]) == lineage_of(first)
        assert child.transcript == alone.transcript
        assert standing(child.session) == standing(alone.session)
    assert parent.session.ends == alone.session.ends[:2]
    assert parent.say(said(8)).plan.cached_tokens == shared
