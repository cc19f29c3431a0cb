"""Several requests, the boundary and the sinks together: G1, G2, G3, G6 on the tables themselves."""

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


BROKEN = {
    "a cancel in decode stays hot": (
        Rules(moves=changed(MOVES, Step.CANCEL, Life.DECODE, fires_boundary=())),
        "G2: CANCELLED left a state that is COMMITTED",
    ),
    "a cancel in prefill stays": (
        Rules(moves=changed(MOVES, Step.CANCEL, Life.PREFILL, fires_boundary=())),
        "G2: CANCELLED left a state that is PREFILLING",
    ),
    "a failed prefill is taken for whole": (
        Rules(
            moves=changed(MOVES, Step.FAIL, Life.PREFILL, fires_boundary=(BoundaryEvent.COMMIT,))
        ),
        "G2: ERROR left a state that is COMMITTED",
    ),
    "a burst is shown before it is committed": (
        Rules(moves=changed(MOVES, Step.BURST, Life.DECODE, fires_sink=SinkEvent.DELTA)),
        "G2: shown to the client while the boundary is LEADING",
    ),
    "an answer finishes before its commit": (
        Rules(moves=changed(MOVES, Step.FINISH, Life.DECODE, boundary={Boundary.LEADING})),
        "G2: DONE, but the boundary is LEADING",
    ),
    "a cancel between two boundaries": (
        Rules(moves=changed(MOVES, Step.CANCEL, Life.DECODE, boundary={Boundary.LEADING})),
        "G3: cancelled between two boundaries",
    ),
    "a start that does not wait for the engine": (
        Rules(moves=changed(MOVES, Step.START_APPEND, Life.QUEUED, hold=None)),
        "G1: running",
    ),
    "an end that keeps the engine": (
        Rules(moves=changed(MOVES, Step.FINISH, Life.DECODE, hold=Hold.KEEPS)),
        "G1: running [], but the engine is held by 0",
    ),
    "a queued cancel that forgets the live state": (
        Rules(
            moves=changed(
                MOVES, Step.CANCEL, Life.QUEUED, fires_boundary=(BoundaryEvent.INVALIDATE,)
            )
        ),
        "G1: the boundary was moved by a request that does not have the engine",
    ),
    "an append to nothing": (
        Rules(moves=changed(MOVES, Step.START_APPEND, Life.QUEUED, boundary=())),
        "G2: attached to a state that is NOTHING",
    ),
    "a failure without an end": (
        Rules(moves=changed(MOVES, Step.FAIL, Life.DECODE, fires_sink=None)),
        "G6: ERROR, but its sink is OPEN",
    ),
    "a rejection without an end": (
        Rules(moves=changed(MOVES, Step.REJECT, Life.QUEUED, fires_sink=None)),
        "G6: REJECTED, but its sink is OPEN",
    ),
    "an end while the prompt is read": (
        Rules(moves=changed(MOVES, Step.PREFILLED, Life.PREFILL, fires_sink=SinkEvent.END)),
        "G6: DECODE, but its sink is ENDED",
    ),
    "a cut that shows something": (
        Rules(moves=changed(MOVES, Step.CUT, Life.PREFILL, fires_sink=SinkEvent.DELTA)),
        "G2: shown to the client while the boundary is PREFILLING",
    ),
    "a client that leaves ends its request": (
        Rules(moves=changed(MOVES, Step.LEAVE, None, fires_sink=SinkEvent.END)),
        "G6: ENQUEUED, but its sink is ENDED",
    ),
    "a stalled client stops the engine": (
        Rules(
            moves=changed(MOVES, Step.COMMIT, Life.DECODE, sink={SinkState.OPEN, SinkState.GONE})
        ),
        "G6: somebody here can never be DONE",
    ),
    "what is hot is only ever extended": (
        Rules(
            moves=changed(
                changed(MOVES, Step.START_COLD, Life.QUEUED, boundary={Boundary.NOTHING}),
                Step.START_RESTORE,
                Life.QUEUED,
                boundary={Boundary.NOTHING},
            )[:5]
        ),
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
        Rules(
            boundary=moving(
                BOUNDARY, Boundary.COMMITTED, BoundaryEvent.INVALIDATE, Boundary.COMMITTED
            )
        ),
        "G2: CANCELLED left a state that is COMMITTED",
    ),
    "table: a cut is taken for the end of the prompt": (
        Rules(
            boundary=moving(BOUNDARY, Boundary.PREFILLING, BoundaryEvent.CUT, Boundary.COMMITTED)
        ),
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
    assert path, "a broken rule needs at least one step to show"


def boundary_trail(edge) -> list:
    """The (state, event) pairs that one move fires at the boundary, in order."""
    state, pairs = edge.before.boundary, []
    for event in edge.move.fires_boundary:
        pairs.append((state, event))
        state = BOUNDARY.rows[state, event]
    return pairs
