"""Several requests, the boundary and the sinks together: G1, G2, G3 and G6 on the tables."""

from collections.abc import Callable

import attrs
import pytest

from flashrt.fsm.boundary import BOUNDARY, Boundary, BoundaryEvent
from flashrt.fsm.lifecycle import LIFECYCLE, Life, LifeEvent
from flashrt.fsm.moves import MOVES, Hold, Step
from flashrt.fsm.sink import SINK, SinkEvent, SinkState
from flashrt.fsm.table import Table
from tests.specs.product import Counterexample, Rules, Walk, changed


@pytest.fixture(scope="module")
def walk() -> Walk:
    """Two requests, everything they can do."""
    return Walk.over(2)


@pytest.mark.parametrize("requests", [1, 2, 3])
def test_no_order_of_moves_breaks_a_law(requests: int):
    """One owner, never leading, boundaries only, one ending, everybody can be served.

    The laws are checked on every move of the walk; a broken one raises with the path to it.
    """
    walk = Walk.over(requests)

    assert any(joint.all_over for joint in walk.found_by)


def test_the_walk_takes_every_move(walk: Walk):
    """A move that can never be taken would be proved about in vain."""
    assert {edge.move for edge in walk.edges} == set(MOVES)


@pytest.mark.parametrize(
    ("table", "fired"),
    [
        (LIFECYCLE, lambda edge: [(edge.before.lives[edge.request], edge.move.fires_life)]),
        (SINK, lambda edge: [(edge.before.sinks[edge.request], edge.move.fires_sink)]),
        (BOUNDARY, lambda edge: boundary_trail(edge)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_walk_takes_every_row_of_the_tables(walk: Walk, table: Table, fired: Callable):
    """The three tables hold no row that no move ever uses."""
    used = {pair for edge in walk.edges for pair in fired(edge) if pair[1] is not None}

    assert used == set(table.rows)


def test_the_walk_meets_the_awkward_moments(walk: Walk):
    """The state space is the one we mean: one runs while another has left, has ended, or waits."""
    seen = {str(joint) for joint in walk.found_by}

    assert "DECODE/OPEN* QUEUED/GONE | LEADING" in seen
    assert "PREFILL/GONE* CANCELLED/ENDED | PREFILLING" in seen
    assert "DONE/ENDED DECODE/STALLED* | COMMITTED" in seen
    assert "ERROR/ENDED REJECTED/ENDED | NOTHING" in seen


# What follows breaks one thing at a time, to show that the walk can fail.


def without(table: Table, state: object, event: object) -> Table:
    """The table less one row."""
    rows = {pair: after for pair, after in table.rows.items() if pair != (state, event)}
    return attrs.evolve(table, rows=rows)


def moving(table: Table, state: object, event: object, after: object) -> Table:
    """The table with a row that leads somewhere else."""
    return attrs.evolve(table, rows={**table.rows, (state, event): after})


def moves(
    step: Step, request: Life | None = None, at: Boundary | None = None, /, **fields
) -> Rules:
    """The rules with one move changed."""
    return Rules(moves=changed(MOVES, step, request, at, **fields))


COMMITTED, LEADING, NOTHING = Boundary.COMMITTED, Boundary.LEADING, Boundary.NOTHING
ANYWHERE = frozenset(Boundary)

BROKEN = {
    "a cancel stays hot": (
        moves(Step.CANCEL, Life.DECODE, fires_boundary=()),
        "G2: CANCELLED left a state that is COMMITTED",
    ),
    "a failure that is taken for a whole prompt": (
        moves(Step.FAIL, Life.PREFILL, fires_boundary=(BoundaryEvent.COMMIT,)),
        "illegal: boundary: COMMIT in NOTHING",
    ),
    "a failure stays hot": (
        moves(Step.FAIL, Life.DECODE, fires_boundary=()),
        "G2: ERROR left a state that is COMMITTED",
    ),
    "a stop of the server stays hot": (
        moves(Step.ABANDON, Life.DECODE, fires_boundary=()),
        "G2: CANCELLED left a state that is COMMITTED",
    ),
    "an answer that ends before its commit": (
        moves(Step.FINISH, Life.DECODE, LEADING, fires_boundary=()),
        "G2: nobody has the engine, and the boundary is LEADING",
    ),
    "an answer out of a rollback's reach that is committed all the same": (
        moves(Step.FINISH, Life.DECODE, LEADING, fires_boundary=(BoundaryEvent.COMMIT,)),
        "G2: DONE before its commit left a state that is COMMITTED",
    ),
    "a cancel between two boundaries": (
        moves(Step.CANCEL, Life.DECODE, boundary=ANYWHERE),
        "G3: cancelled between two boundaries",
    ),
    "a start that does not wait for the engine": (
        moves(Step.START, hold=None),
        "G1: running",
    ),
    "a start that takes the engine from another": (
        moves(Step.START, hold=Hold.FREES),
        "G6: somebody here can never be DONE",
    ),
    "an end that keeps the engine": (
        moves(Step.FINISH, Life.DECODE, COMMITTED, hold=Hold.KEEPS),
        "G1: running [], but the engine is held by 0",
    ),
    "a queued cancel that forgets the live state": (
        moves(Step.CANCEL, Life.QUEUED, fires_boundary=(BoundaryEvent.INVALIDATE,)),
        "G1: the boundary was moved by a request that does not have the engine",
    ),
    "a queued cancel that still starts": (
        moves(Step.START, request=frozenset({Life.QUEUED, Life.CANCELLED})),
        "illegal: lifecycle: START in CANCELLED",
    ),
    "a prompt read on top of a burst": (
        moves(Step.READ, request=frozenset({Life.DECODE}), boundary=frozenset({LEADING})),
        "illegal: boundary: PREFILL in LEADING",
    ),
    "a failure without an end": (
        moves(Step.FAIL, Life.DECODE, fires_sink=None),
        "G6: ERROR, but its sink is OPEN",
    ),
    "a rejection without an end": (
        moves(Step.REJECT, fires_sink=None),
        "G6: REJECTED, but its sink is OPEN",
    ),
    "an end while the prompt is read": (
        moves(Step.PREFILLED, None, Boundary.PREFILLING, fires_sink=SinkEvent.END),
        "G6: DECODE, but its sink is ENDED",
    ),
    "a cut that shows something": (
        moves(Step.CUT, fires_sink=SinkEvent.DELTA),
        "G6: a delta of a request in PREFILL",
    ),
    "a client that leaves ends its request": (
        moves(Step.LEAVE, fires_sink=SinkEvent.END),
        "G6: ENQUEUED, but its sink is ENDED",
    ),
    "a stalled client stops the engine": (
        moves(Step.COMMIT, sink=frozenset({SinkState.OPEN, SinkState.GONE})),
        "G6: somebody here can never be DONE",
    ),
    "what is hot is in everybody's way": (
        moves(Step.START, boundary=frozenset({NOTHING})),
        "G6: somebody here can never be DONE",
    ),
    "table: a delta for a client that is gone": (
        Rules(sink=without(SINK, SinkState.GONE, SinkEvent.DELTA)),
        "illegal: sink: DELTA in GONE",
    ),
    "table: a prefill that cannot be cancelled": (
        Rules(lifecycle=without(LIFECYCLE, Life.PREFILL, LifeEvent.CANCEL)),
        "illegal: lifecycle: CANCEL in PREFILL",
    ),
    "table: an invalidate that stays hot": (
        Rules(boundary=moving(BOUNDARY, COMMITTED, BoundaryEvent.INVALIDATE, COMMITTED)),
        "G2: CANCELLED left a state that is COMMITTED",
    ),
    "table: a commit that does not commit": (
        Rules(boundary=moving(BOUNDARY, LEADING, BoundaryEvent.COMMIT, LEADING)),
        "G6: somebody here can never be DONE",
    ),
}


@pytest.mark.parametrize(("rules", "law"), BROKEN.values(), ids=BROKEN.keys())
def test_the_walk_finds_a_broken_rule(rules: Rules, law: str):
    """Each of these breaks a guarantee, and the walk names it and prints the way there."""
    with pytest.raises(Counterexample) as found:
        Walk.over(2, rules)

    first, start, *path = str(found.value).split("\n")
    assert first.startswith(law)
    assert start.strip().startswith("start: ENQUEUED/OPEN ENQUEUED/OPEN | NOTHING")
    assert all(" of request " in step for step in path)
    assert path, "no rule here is broken at the start"


def boundary_trail(edge) -> list:
    """The (state, event) pairs that one move fires at the boundary, in order."""
    state, pairs = edge.before.boundary, []
    for event in edge.move.fires_boundary:
        pairs.append((state, event))
        state = BOUNDARY.rows[state, event]
    return pairs
