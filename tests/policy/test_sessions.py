"""Conversations by content; a client's name for one is only a hint."""

import pytest

from flashrt.chat.render import Renderer
from flashrt.chat.request import AgentRequest
from flashrt.chat.visible import Visible
from flashrt.engine.protocol import pack_ids
from flashrt.errors import EngineFailed
from flashrt.policy.journal import Journal
from flashrt.policy.lineage import with_block, with_decoded
from flashrt.policy.sessions import SessionRegistry
from flashrt.policy.steps import Decode
from flashrt.policy.turn_ends import TurnEnd
from tests.chat.vocabulary import template, tokenizer
from tests.policy.turns import Server, said
from tests.weighing import weighed


def test_the_registry_is_bounded_and_the_oldest_goes_first():
    """A session that is used again stays."""
    registry = SessionRegistry(sessions_max=2)
    first, second = registry.open("a"), registry.open("a")
    registry.use(first)
    registry.open("a")
    assert len(registry) == 2
    assert registry.get(first.name) is first
    assert registry.get(second.name) is None


def test_who_is_idle_for_too_long_is_forgotten():
    """Use begins the time anew; at the limit itself a session still lives."""
    now = [0.0]
    registry = SessionRegistry(idle_ttl_s=10, clock=lambda: now[0])
    idle, used = registry.open("a"), registry.open("a")
    now[0] = 6.0
    registry.use(used)
    now[0] = 10.0
    assert registry.expire() == []
    now[0] = 10.5
    assert registry.expire() == [idle]
    assert registry.get(idle.name) is None
    assert registry.get(used.name) is used
    now[0] = 1e9
    assert SessionRegistry(clock=lambda: now[0]).expire() == []


def test_a_hint_finds_only_sessions_of_its_namespace():
    """Two namespaces may use one name (G10)."""
    registry = SessionRegistry()
    mine, other = registry.open("a"), registry.open("b")
    mine.hint = other.hint = "chat"
    assert registry.hinted("a", "chat") is mine
    assert registry.hinted("b", "chat") is other
    assert registry.hinted("c", "chat") is None
    assert registry.hinted("a", None) is None


def test_the_newest_of_a_name_is_found():
    """Names are reused by clients."""
    registry = SessionRegistry()
    old, new = registry.open("a"), registry.open("a")
    old.hint = new.hint = "chat"
    assert registry.hinted("a", "chat") is new
    registry.use(old)
    assert registry.hinted("a", "chat") is old


def test_names_are_never_used_twice():
    """Capsules carry them longer than the registry may know them."""
    registry = SessionRegistry(sessions_max=1)
    assert len({registry.open("a").name for _ in range(5)}) == 5


def test_shared_counts_pending_ids_too():
    """A prompt may go on with the pending id."""
    session = SessionRegistry().open("a")
    session.journal = Journal.of((1, 2, 3), 2, ())
    assert session.shared(pack_ids((1, 2, 3, 4))) == 3
    assert session.shared(pack_ids((1, 9))) == 1


def talked(registry, number, turns, length):
    """A session after a conversation with texts of this length, rendered by nobody before."""
    said = [("user", "assistant")[i % 2] for i in range(2 * turns)]
    text = f"{number} {'word ' * (length // 5)}"
    messages = [{"role": role, "content": f"{i} {text}"} for i, role in enumerate(said)]
    messages.append({"role": "user", "content": "more"})
    prompt = RENDERER.render(AgentRequest("", messages=tuple(messages)))
    session = registry.open("a")
    session.wording = prompt.wording
    session.answer = Visible("".join(["x"] * length), (("look", "".join(["y"] * length)),))
    lineage = ()
    for turn in range(turns):
        lineage = with_decoded(with_block(lineage, 1000 + 9 * turn), 1005 + 9 * turn)
    session.journal = Journal.of(prompt.ids, len(prompt), lineage)
    for turn in range(turns):
        session.ends.append(TurnEnd(1000 + turn, 3000 + turn, turn, 900 + turn, 2 * turn))
        session.places[f"{number:08x}{turn:024x}"] = 1000 + turn
    registry.weigh(session)
    return session


RENDERER = Renderer(tokenizer(), template(), cached_bytes_max=0)
"""Remembers nothing itself."""


@pytest.mark.parametrize(
    ("turns", "length"), [(0, 5), pytest.param(3, 20, marks=pytest.mark.slow), (30, 100)]
)
def test_the_count_is_what_python_allocates(turns, length):
    """Short conversations and long ones: never less, and not twice as much."""
    talked(SessionRegistry(), -1, turns, length)

    def filled():
        registry = SessionRegistry(sessions_max=99)
        for number in range(20):
            talked(registry, number, turns, length)
        return registry

    registry, allocated = weighed(filled)
    assert allocated <= registry.held_bytes <= 2 * allocated


def test_long_conversations_push_out_the_oldest_and_never_the_newest():
    """Their bytes are bounded, not only their number."""
    one = talked(SessionRegistry(), 0, 5, 1000).size_bytes
    registry = SessionRegistry(bytes_max=3 * one)
    first, *_, last = (talked(registry, number, 5, 1000) for number in range(6))
    assert registry.held_bytes <= 3 * one
    assert registry.get(first.name) is None
    assert registry.get(last.name) is last
    huge = talked(registry, 7, 40, 1000)
    assert len(registry) == 1
    assert registry.get(huge.name) is huge
    assert registry.held_bytes == huge.size_bytes


def test_a_session_that_gets_shorter_makes_room():
    """What is counted is what it holds now: edits cut conversations, and idle ones go."""
    now = [0.0]
    registry = SessionRegistry(idle_ttl_s=1, clock=lambda: now[0])
    session = talked(registry, 0, 5, 1000)
    session.journal = Journal()
    session.wording = session.answer = None
    registry.weigh(session)
    assert registry.held_bytes == session.size_bytes
    now[0] = 2.0
    registry.expire()
    assert registry.held_bytes == 0


def test_a_session_is_weighed_at_the_end_of_each_turn_however_it_ends():
    """What is counted is what is held: after answers, after cancels, after steps that failed."""
    server = Server()
    sessions = server.policy.sessions
    served = [said(*range(length)) for length in (5, 200, 40)]
    fails = Broken(server, Decode)
    for number, prompt in enumerate(served):
        server.serve(prompt, hint=f"h{number}")
        assert sessions.held_bytes == weight(sessions)
        server.serve((*prompt, 7), hint=f"h{number}", cancel=Cancelled())
        assert sessions.held_bytes == weight(sessions)
        server.serve((*prompt, 8), hint=f"h{number}", perform=fails)
        assert sessions.held_bytes == weight(sessions)
    assert weight(sessions) > 245 * 4


def test_a_name_is_found_in_its_own_namespace_only():
    """G10; what is forgotten has no name any more."""
    registry = SessionRegistry(new_name=iter(["sess_x", "sess_y"]).__next__)
    mine, other = registry.open("a"), registry.open("b")
    assert (mine.name, other.name) == ("sess_x", "sess_y")
    assert registry.named("a", "sess_x") is mine
    assert registry.named("a", "sess_y") is registry.named("a", None) is None
    registry.forget(mine)
    registry.forget(mine)
    assert registry.named("a", "sess_x") is None
    assert registry.held_bytes == other.size_bytes


def test_an_undo_makes_a_session_as_light_as_it_was():
    """What is counted follows what is held, ends and texts among it."""
    server = Server()
    sessions = server.policy.sessions
    first = said(*range(50))
    served = server.serve(first)
    (session,) = sessions.newest("a")
    before = sessions.held_bytes
    server.serve((*first, *served.ids, *said(*[7] * 200)))
    assert sessions.held_bytes > before + 4 * 200
    session.rewind(session.ends[0])
    sessions.weigh(session)
    assert sessions.held_bytes == session.size_bytes <= before + 200


def weight(sessions):
    """What the sessions of the namespace hold, counted anew."""
    return sum(session.size_bytes for session in sessions.newest("a"))


class Cancelled:
    """A token that is set from the beginning."""

    cancelled = True


class Broken:
    """Steps of one kind fail."""

    def __init__(self, server, kind):
        self.server, self.kind = server, kind

    def __call__(self, step):
        if isinstance(step, self.kind):
            self.server.engine.reset()
            raise EngineFailed("broken")
        return self.server.performer.perform(step)
