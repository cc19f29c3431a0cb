"""States that a client has pinned."""

import pytest

from flashrt.policy.turn import Pinned
from tests.policy.turns import Server, opening, said

LONG = (*opening(*range(1, 30)), *said(*[7] * 200))
SYSTEM_END = len(opening(*range(1, 30)))


def report(served):
    (event,) = served.of(Pinned)
    return event.report


def pinned(server):
    return sorted(e.position for e in server.policy.store.entries() if e.pinned)


@pytest.mark.parametrize(
    ("wish", "at"),
    [(True, SYSTEM_END), (SYSTEM_END, SYSTEM_END), (64, 64), (200, 192), (9999, 192)],
)
def test_the_last_cut_at_or_below_the_number_is_pinned(wish, at):
    """True means the system turn."""
    server = Server()
    assert report(server.serve(LONG, pin=wish)) == {"pinned_tokens": at}
    assert pinned(server) == [at]


def test_without_a_wish_nothing_is_pinned():
    """And nothing is said of it."""
    server = Server()
    assert not server.serve(LONG).of(Pinned)
    assert pinned(server) == []


def test_what_is_cached_is_pinned_at_once():
    """The next turn of a conversation pins the state that it starts from, or one below."""
    server = Server()
    first = server.serve(LONG)
    again = server.serve((*LONG, *first.ids, *said(5)), pin=200)
    assert report(again)["pinned_tokens"] <= 200
    assert len(pinned(server)) == 1


def test_a_pinned_state_survives_what_evicts_all_others():
    """A budget of a few states, and many conversations."""
    server = Server(budget=4_000)
    assert report(server.serve(LONG, pin=True)) == {"pinned_tokens": SYSTEM_END}
    for other in range(30):
        server.serve(said(*[other + 8] * 40))
    assert pinned(server) == [SYSTEM_END]
    assert server.serve((*opening(*range(1, 30)), *said(9))).plan.cached_tokens == SYSTEM_END


def test_a_pin_that_does_not_fit_is_refused_and_the_request_is_served():
    """With a reason that names the limit; and so is one without a cut."""
    server = Server(budget=0)
    served = server.serve(LONG, pin=True)
    assert "--capsule-budget-mb" in report(served)["refused"]
    assert len(served.ids) == 3
    served = Server().serve(LONG, pin=5)
    assert "no cut at or below" in report(served)["refused"]
    assert len(served.ids) == 3


def test_false_lets_go():
    """Of what this prompt has pinned, and of nothing else."""
    server = Server()
    server.serve(LONG, pin=True)
    server.serve((*opening(30, 31), *said(4)), pin=True)
    assert len(pinned(server)) == 2
    assert report(server.serve(LONG, pin=False)) == {"unpinned": 1}
    assert pinned(server) == [len(opening(30, 31))]
    assert report(server.serve(LONG, pin=0)) == {"unpinned": 0}
