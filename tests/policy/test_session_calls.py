"""Session calls: what they leave, what they say, and that a fault makes them slow at most."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.engine.protocol import pack_ids
from flashrt.errors import Conflict, EngineFailed, NotFound
from flashrt.policy.steps import Reset, Restore, Save, Weigh
from flashrt.policy.turn import Planned
from tests.policy.calling import SYSTEM, Agent, Chat
from tests.policy.turns import Server, said

# -- undo ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_an_undo_of_a_parked_session_leaves_the_live_one_alone(turns):
    """Somebody else is hot: no step is made, and the next turn restores."""
    chat, steps = Chat(), []
    for text in (said(3), said(4), said(5)):
        chat.say(text)
    other = Chat(server=chat.server)
    other.say(said(9))
    report = chat.undo(turns, perform=steps.append)
    assert steps == []
    assert chat.server.policy.hot.session is other.session
    assert report.next_turn == ("restore" if turns < 3 else "rebuild")
    assert other.say(said(7)).action == "append"
    assert chat.say(said(6)).plan.cached_tokens == max(report.tokens, len(SYSTEM))


@pytest.mark.parametrize("fails", [None, Restore])
def test_an_undo_works_where_no_state_is_held(fails):
    """Nothing was ever saved, or it cannot be restored: the next turn reads from 0, and is cold."""
    chat = Chat(budget=0 if fails is None else 10**9)
    chat.say(said(3))
    chat.say(said(4))

    def perform(step):
        if fails is not None and isinstance(step, fails):
            raise OSError("planted")
        return chat.server.performer.perform(step)

    report = chat.undo(perform=perform)
    assert not report.hot
    assert report.reusable_tokens < report.tokens
    assert chat.server.policy.hot is None
    again = chat.say(said(5))
    cold = Server().serve((*chat.transcripts[-2], *said(5)))
    assert again.ids == cold.ids


def test_the_tail_of_an_undo_goes_first_and_not_what_others_stand_on():
    """A child was forked behind the turn that its parent takes back."""
    chat = Chat()
    chat.say(said(3))
    chat.say(said(4))
    (child,) = chat.agent.fork(chat.name)
    at = child.tokens
    chat.say(said(5))
    chat.undo(2)
    store = chat.server.policy.store
    (theirs,) = (e for e in store.of_session(child.name) if e.position == at)
    assert not theirs.first_to_go
    tails = [e for e in store.of_session(chat.name) if e.position > chat.session.journal.processed]
    assert tails
    assert all(entry.first_to_go for entry in tails)


def test_a_regenerated_turn_does_not_take_a_childs_state_either():
    """The same by a plain request: its tail goes first, a child's beginning stays."""
    chat = Chat()
    chat.say(said(3))
    (child,) = chat.agent.fork(chat.name)
    prompt = (*SYSTEM, *said(3))
    assert chat.server.serve(prompt, 5, hint=chat.name).action == "truncate"
    (theirs,) = chat.server.policy.store.of_session(child.name)
    assert (theirs.position, theirs.first_to_go) == (child.tokens, False)


def test_nothing_is_left_to_undo_before_the_first_turn():
    """409; and what is undone whole is an empty session that can be used again."""
    chat = Chat()
    with pytest.raises(Conflict, match="0 turns"):
        chat.undo()
    chat.say(said(3))
    report = chat.undo()
    assert (report.turns, report.tokens, report.messages) == (0, 0, 0)
    assert chat.say(said(4)).ids == Server().serve((*SYSTEM, *said(4))).ids


# -- fork ------------------------------------------------------------------------------------------


def test_a_fork_keeps_the_live_state_and_parks_it_before_a_child_goes_on():
    """The first child goes on with what is live; its parent finds its end saved."""
    chat = Chat()
    chat.say(said(3))
    (child,) = chat.agent.fork(chat.name)
    assert (child.hot, child.next_turn, child.parent) == (False, "append", chat.name)
    first = chat.child(child.name).say(said(4))
    assert first.action == "append"
    assert first.plan.parks
    assert chat.agent.show(chat.name).next_turn == "restore"


def test_what_is_live_is_saved_for_a_fork_that_finds_no_saved_state():
    """It was not kept at the turn's end: a fault. The fork has it saved, and says what it has."""
    chat = Chat()

    def broken(step):
        if isinstance(step, Save):
            raise OSError("planted")
        return chat.server.performer.perform(step)

    chat.say(said(3), perform=broken)
    assert chat.agent.show(chat.name).states == ()
    (child,) = chat.agent.fork(chat.name)
    assert [state.tokens for state in child.states] == [child.tokens]
    chat.say(said(4), perform=broken)
    (lost,) = chat.agent.fork(chat.name, perform=broken)
    assert [state.tokens for state in lost.states] == [child.tokens]
    Chat(server=chat.server).say(said(9), perform=broken)
    lost = chat.agent.show(lost.name)
    assert (lost.next_turn, lost.reusable_tokens) == ("restore", child.tokens)


def test_a_fork_at_an_earlier_boundary_has_the_turns_up_to_there():
    """By turns, tokens, and never what came behind."""
    chat = Chat()
    for text in (said(3), said(4), said(5)):
        chat.say(text)
    whole = chat.agent.show(chat.name)
    for back, end in enumerate(reversed(whole.boundaries)):
        for mark in ({"turns": back}, {"tokens": end.tokens}):
            (child,) = chat.agent.fork(chat.name, **mark)
            assert (child.tokens, child.turns) == (end.tokens, 3 - back)
    again = chat.agent.show(chat.name)
    assert attrs.evolve(again, used_at=0) == attrs.evolve(whole, used_at=0)


def test_more_forks_than_sessions_are_kept_are_refused():
    """The parent would be forgotten for its own children."""
    chat = Chat()
    limit = chat.server.policy.sessions.sessions_max
    with pytest.raises(Conflict, match="--max-active-sessions"):
        chat.agent.fork(chat.name, limit)
    assert len(chat.agent.fork(chat.name, limit - 1)) == limit - 1
    assert chat.agent.show(chat.name).name == chat.name


# -- what begins where -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["system", "prompt", "committed"])
def test_a_session_begins_at_a_saved_state(kind):
    """It has the turns that led there, if they are known; its next turn computes only the rest."""
    chat = Chat()
    chat.say(said(3))
    chat.say(said(4))
    states = [s for s in chat.agent.show(chat.name).states if s.kind == kind]
    report = chat.agent.create(capsule=states[0].key)
    turns = {"system": 0, "prompt": 1, "committed": 2}[kind]
    assert (report.tokens, report.turns) == (states[0].tokens, turns)
    assert report.reusable_tokens == report.tokens
    prompt = (*chat.transcript[: report.tokens], *said(7))
    served = chat.server.serve(prompt, hint=report.name)
    assert served.of(Planned)[0].session == report.name
    assert served.plan.cached_tokens == report.tokens
    assert chat.agent.show(report.name).boundaries[-1].turns == 0
    back = chat.agent.undo(report.name)
    assert (back.tokens, back.turns) == (report.tokens, report.turns)


def test_a_saved_state_of_another_namespace_is_not_there():
    """G10; nor is one that was never held."""
    chat = Chat()
    chat.say(said(3))
    (state, *_) = chat.agent.show(chat.name).states
    for agent, key in ((Agent(chat.server, "b"), state.key), (chat.agent, "0" * 32)):
        with pytest.raises(NotFound) as refusal:
            agent.create(capsule=key)
        assert refusal.value.param == "from_capsule"


def test_a_named_turn_stays_in_its_session_whatever_it_shares():
    """An edit far back is no new session: its client would name the old one again and again."""
    chat = Chat()
    for text in (said(3), said(4), said(5)):
        chat.say(text)
    edited = chat.server.serve((*chat.transcripts[1], *said(9)), hint=chat.name)
    assert edited.action == "fork"
    assert edited.of(Planned)[0].session == chat.name
    assert [end.tokens for end in chat.agent.show(chat.name).boundaries] == [
        0,
        len(chat.transcripts[1]) - 1,
        len(chat.transcripts[1]) + len(said(9)) + 2,
    ]
    strange = chat.server.serve(said(20, 21), hint=chat.name)
    assert strange.of(Planned)[0].session == chat.name
    assert chat.agent.show(chat.name).turns == 1


def test_a_fork_by_itself_knows_whom_it_left_and_can_go_back_to_the_turns_before():
    """An earlier message was edited, without any session named."""
    server = Server()
    agent, transcripts = Agent(server), [SYSTEM]
    for number in (3, 4, 5):
        prompt = (*transcripts[-1], *said(number))
        transcripts.append((*prompt, *server.serve(prompt).ids))
    (whole,) = agent.listed().sessions
    edited = server.serve((*transcripts[1], *said(9)))
    assert edited.action == "fork"
    branch = agent.show(edited.of(Planned)[0].session)
    assert branch.parent == whole.name
    assert (branch.turns, branch.boundaries[1].tokens) == (2, len(transcripts[1]) - 1)
    assert agent.show(whole.name).turns == 3


def test_a_name_of_a_session_is_never_taken_for_the_clients_own():
    """A header that the client sends with other requests still says what it said."""
    chat = Chat()
    chat.server.serve((*SYSTEM, *said(3)), hint="mine")
    (mine,) = (s for s in chat.agent.listed().sessions if s.turns)
    chat.server.serve((*SYSTEM, *said(3)), hint=mine.name)
    assert chat.server.policy.sessions.get(mine.name).hint == "mine"


# -- list and delete -------------------------------------------------------------------------------


@given(st.integers(1, 7), st.integers(0, 6))
@settings(max_examples=30)
def test_pages_have_every_session_once_newest_first(limit, count):
    """`after` is the last of the page before."""
    server = Server()
    agent = Agent(server)
    made = [agent.create().name for _ in range(count)]
    Agent(server, "b").create()
    seen, after = [], None
    while True:
        page = agent.listed(limit, after)
        assert len(page.sessions) <= limit
        seen += [session.name for session in page.sessions]
        if not page.has_more:
            break
        after = seen[-1]
    assert seen == made[::-1]
    with pytest.raises(NotFound):
        agent.listed(after="sess_unknown")


def test_a_deleted_session_leaves_nothing_of_its_own():
    """Its states, pinned ones too, and the live one; the next turn of the same words is cold."""
    chat = Chat()
    chat.say(said(3), pin=True)
    chat.say(said(4))
    held = len(chat.server.policy.store.entries())
    deleted = chat.agent.delete(chat.name)
    assert (deleted.states, deleted.kept_states) == (held, 0)
    assert chat.server.policy.store.footprint() == 0
    assert chat.server.policy.hot is None
    assert chat.server.engine.position == 0
    with pytest.raises(NotFound):
        chat.agent.show(chat.name)
    assert chat.server.serve((*chat.transcript, *said(5))).action == "rebuild"


def test_what_a_living_session_begins_with_is_that_ones_now():
    """The parent goes, then the children one after the other; the last takes it along."""
    chat = Chat()
    chat.say(said(3), pin=True)
    children = [report.name for report in chat.agent.fork(chat.name, 2)]
    store = chat.server.policy.store
    assert chat.agent.delete(chat.name).kept_states == len(store.entries()) == 3
    assert chat.child(children[0]).say(said(4)).plan.cached_tokens > len(SYSTEM)
    chat.agent.delete(children[0])
    assert {entry.session for entry in store.entries()} == {children[1]}
    assert any(entry.pinned for entry in store.entries())
    chat.agent.delete(children[1])
    assert store.entries() == ()


def test_a_failed_step_fails_the_call_and_the_next_is_served():
    """The session is forgotten all the same, and the live state with it."""
    chat = Chat()
    chat.say(said(3))

    def broken(step):
        assert isinstance(step, Reset)
        raise OSError("planted")

    with pytest.raises(EngineFailed, match="planted"):
        chat.agent.delete(chat.name, perform=broken)
    assert not chat.server.loop.is_hot
    assert chat.agent.listed().sessions == ()
    assert chat.agent.create().turns == 0


def test_idle_sessions_are_gone_for_calls_too():
    """Expiry is looked at before each call, as before each turn."""
    chat = Chat(server=Server(idle_ttl_s=10))
    chat.say(said(3))
    chat.server.now = 11.0
    with pytest.raises(NotFound):
        chat.agent.show(chat.name)
    assert chat.server.policy.hot is None


def test_what_a_living_child_begins_with_does_not_expire_with_its_parent():
    """The parent is idle for too long; the child has been used."""
    chat = Chat(server=Server(idle_ttl_s=10))
    chat.say(said(3))
    (report,) = chat.agent.fork(chat.name)
    other = Chat(server=chat.server)
    chat.server.now = 6.0
    other.say(said(9))
    child = chat.child(report.name)
    child.say(said(4))
    child.undo()
    chat.server.now = 12.0
    other.say(said(8))
    with pytest.raises(NotFound):
        chat.agent.show(chat.name)
    assert child.say(said(5)).plan.cached_tokens == report.tokens
    assert {e.session for e in chat.server.policy.store.entries()} <= {child.name, other.name}


def test_a_call_saves_within_the_budget_only():
    """A state that does not fit is not saved for a fork; it is no error."""
    chat = Chat(budget=0)
    chat.say(said(3))
    steps = []

    def perform(step):
        steps.append(type(step))
        return chat.server.performer.perform(step)

    (child,) = chat.agent.fork(chat.name, perform=perform)
    assert not {Save, Weigh} & set(steps)
    assert (child.states, child.next_turn) == ((), "append")


def test_the_stored_ids_are_those_of_the_session():
    """What is told as saved heads the session, id by id."""
    chat = Chat()
    chat.say(said(3))
    chat.say(said(4))
    store = chat.server.policy.store
    for state in chat.agent.show(chat.name).states:
        assert store.get(state.key).begins_with(pack_ids(chat.transcript[: state.tokens]))
