"""Memory that runs out costs saved states first, then the one request; never more."""

import pytest

from flashrt.chat.request import AgentRequest
from flashrt.errors import OutOfMemory, Unavailable
from flashrt.fsm.lifecycle import LifeEvent
from flashrt.policy.steps import Advance, Decode, Prefill
from flashrt.policy.turn import Ended
from tests.policy.turns import Server, opening, said
from tests.whole.server import VOICE

PROMPT = opening(*range(1, 9)) + said(*range(10, 40)) + said(*range(10, 40)) + said(9)


class Short:
    """Steps of `kind` fail for want of memory, the first `times` of them."""

    def __init__(self, server, kind, times):
        self.server, self.kind, self.left = server, kind, times

    def __call__(self, step):
        if isinstance(step, self.kind) and self.left:
            self.left -= 1
            self.server.engine.reset()  # as an engine does whose step has failed half-way
            raise OutOfMemory("no memory")
        return self.server.performer.perform(step)


def filled(**wish):
    """A server that holds the states of other conversations."""
    server = Server(**wish)
    for first in range(6):
        server.serve(said(41 + first, *range(20)))
    return server


def ended(served):
    (end,) = served.of(Ended)
    return end


@pytest.mark.parametrize("kind", [Prefill, Prefill | Advance])
def test_a_prompt_is_read_once_more_with_half_of_the_saved_states(kind):
    """And the answer is the cold one."""
    server = filled()
    held = server.policy.store.footprint()
    served = server.serve(PROMPT, perform=Short(server, kind, 1))
    assert ended(served).event is LifeEvent.FINISH
    assert served.ids == Server().serve(PROMPT).ids
    assert server.policy.store.counts["evicted"] >= 1
    assert held // 2 >= sum(
        e.capsule.state_bytes for e in server.policy.store.entries() if e.session != "s7"
    )


@pytest.mark.parametrize(
    ("kind", "times"), [(Prefill, 2), (Decode, 1)], ids=["twice in prefill", "in decode"]
)
def test_where_that_does_not_help_the_one_request_is_refused(kind, times):
    """With 503 and a way out; the next one is served as if nothing had been."""
    server = filled()
    served = server.serve(PROMPT, perform=Short(server, kind, times))
    assert ended(served).event is LifeEvent.FAIL
    assert isinstance(ended(served).error, Unavailable)
    assert "--capsule-budget-mb" in ended(served).error.message
    assert not server.loop.is_hot
    assert server.serve(PROMPT).ids == Server().serve(PROMPT).ids


def test_with_nothing_to_let_go_it_is_refused_at_once():
    """The step is not tried again."""
    server = Server(budget=0)
    short = Short(server, Prefill, 2)
    served = server.serve(PROMPT, perform=short)
    assert isinstance(ended(served).error, Unavailable)
    assert short.left == 1


def test_pinned_states_stay():
    """They were asked for."""
    server = Server()
    server.serve(PROMPT, pin=True)
    assert any(entry.pinned for entry in server.policy.store.entries())
    server.serve(said(50, 51), perform=Short(server, Prefill, 1))
    assert any(entry.pinned for entry in server.policy.store.entries())


def test_a_session_is_weighed_though_its_turn_began_anew():
    """The first beginning holds a prompt as well."""
    server = filled(vocab_size=VOICE.tokenizer.vocab_size)
    request = AgentRequest("", messages=({"role": "user", "content": "word " * 90},))
    prompt = VOICE.renderer.render(request)
    server.serve(prompt, perform=Short(server, Prefill, 1))
    sessions = server.policy.sessions
    assert sessions.held_bytes == sum(session.size_bytes for session in sessions.newest("a"))
