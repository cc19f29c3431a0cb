"""Every order in which several requests can make the moves, walked breadth first.

The state is the product of the requests' lives, their sinks, the boundary, and who has the engine.
The walk fires the real tables; whatever breaks a law is raised with the shortest path to it.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import attrs

from flashrt.fsm.boundary import BOUNDARY, Boundary, BoundaryEvent
from flashrt.fsm.lifecycle import LIFECYCLE, Life, LifeEvent
from flashrt.fsm.moves import MOVES, Hold, Move, Step
from flashrt.fsm.sink import SINK, SinkEvent, SinkState
from flashrt.fsm.table import IllegalTransition, Machine, Table

RUNNING = {Life.PREFILL, Life.DECODE}
IDLE = {Boundary.NOTHING, Boundary.COMMITTED}
CLIENTS = {Step.STALL, Step.RESUME, Step.LEAVE}
UNHAPPY = {Step.REJECT, Step.CANCEL, Step.FAIL, Step.ABANDON}


@attrs.frozen
class Rules:
    """The tables and the moves that are walked; tests put broken ones in."""

    lifecycle: Table[Life, LifeEvent] = LIFECYCLE
    boundary: Table[Boundary, BoundaryEvent] = BOUNDARY
    sink: Table[SinkState, SinkEvent] = SINK
    moves: tuple[Move, ...] = MOVES


@attrs.frozen
class Joint:
    """Where everything stands at once. `owner` is the request that has the engine."""

    lives: tuple[Life, ...]
    sinks: tuple[SinkState, ...]
    boundary: Boundary
    owner: int | None = None

    @property
    def all_over(self) -> bool:
        """Whether every request is in a terminal state."""
        return all(life in LIFECYCLE.terminal for life in self.lives)

    def __str__(self) -> str:
        requests = " ".join(
            f"{life.name}/{sink.name}{'*' * (i == self.owner)}"
            for i, (life, sink) in enumerate(zip(self.lives, self.sinks, strict=True))
        )
        return f"{requests} | {self.boundary.name}"


@attrs.frozen
class Edge:
    """One move of one request, and where it leads."""

    before: Joint
    move: Move
    request: int
    after: Joint

    def __str__(self) -> str:
        return f"{self.move.step.name} of request {self.request}: {self.after}"


class Counterexample(AssertionError):
    """A law that does not hold, and the shortest path to where it breaks."""


@attrs.define
class Walk:
    """All reachable joint states, the edge by which each was found first, and every edge."""

    rules: Rules
    start: Joint
    found_by: dict[Joint, Edge | None] = attrs.field(factory=dict)
    edges: list[Edge] = attrs.field(factory=list)

    @classmethod
    def over(cls, requests: int, rules: Rules | None = None) -> "Walk":
        """Walk everything that `requests` requests can do, checking the laws after every move."""
        rules = rules or Rules()
        start = Joint(
            (rules.lifecycle.initial,) * requests,
            (rules.sink.initial,) * requests,
            rules.boundary.initial,
        )
        walk = cls(rules, start, {start: None})
        waiting = deque([start])
        while waiting:
            for edge in walk.moves_from(waiting.popleft()):
                for broken in broken_laws(edge):
                    raise Counterexample(walk.story(broken, edge))
                walk.edges.append(edge)
                if edge.after not in walk.found_by:
                    walk.found_by[edge.after] = edge
                    waiting.append(edge.after)
        walk.check_everybody_can_be_served()
        return walk

    def moves_from(self, joint: Joint) -> Iterator[Edge]:
        """Every move that may be taken; a machine that has no row for one breaks a law."""
        for request in range(len(joint.lives)):
            for move in self.rules.moves:
                if may_be_taken(move, joint, request):
                    try:
                        yield Edge(joint, move, request, self.take(move, joint, request))
                    except IllegalTransition as error:
                        edge = Edge(joint, move, request, joint)
                        raise Counterexample(self.story(f"illegal: {error}", edge)) from error

    def take(self, move: Move, joint: Joint, request: int) -> Joint:
        """Fire the move's events on real machines and read off where they stand."""
        life = Machine(self.rules.lifecycle, joint.lives[request])
        sink = Machine(self.rules.sink, joint.sinks[request])
        boundary = Machine(self.rules.boundary, joint.boundary)
        if move.fires_life:
            life.fire(move.fires_life)
        for event in move.fires_boundary:
            boundary.fire(event)
        if move.fires_sink:
            sink.fire(move.fires_sink)
        owner = {Hold.TAKES: request, Hold.FREES: None}.get(move.hold, joint.owner)
        return Joint(
            replaced(joint.lives, request, life.state),
            replaced(joint.sinks, request, sink.state),
            boundary.state,
            owner,
        )

    def check_everybody_can_be_served(self) -> None:
        """From every state each request that is not over can still be DONE, whatever clients do.

        A backward search from the states in which all are over, along the server's own good moves.
        It excludes deadlocks, and states from which some request could only be given up.
        """
        into: dict[Joint, list[Joint]] = {}
        for edge in self.edges:
            if is_good(edge.move):
                into.setdefault(edge.after, []).append(edge.before)
        served = {joint for joint in self.found_by if joint.all_over}
        waiting = list(served)
        while waiting:
            for before in into.get(waiting.pop(), ()):
                if before not in served:
                    served.add(before)
                    waiting.append(before)
        goes_on = {before for befores in into.values() for before in befores}
        forgotten = [joint for joint in self.found_by if joint not in served]
        for joint in sorted(forgotten, key=goes_on.__contains__):  # dead ends first: they say why
            law = "G6: somebody here can never be DONE"
            raise Counterexample(self.story(law, self.found_by[joint]))

    def story(self, law: str, last: Edge | None) -> str:
        """The law that broke and the moves that lead there, one a line."""
        path = []
        edge = last
        while edge is not None:
            path.append(str(edge))
            edge = self.found_by[edge.before]
        return "\n  ".join([law, f"start: {self.start}", *reversed(path)])


def may_be_taken(move: Move, joint: Joint, request: int) -> bool:
    """Whether the conditions of the move's row hold for `request`."""
    has_engine = {
        None: True,
        Hold.TAKES: joint.owner is None,
        Hold.KEEPS: joint.owner == request,
        Hold.FREES: joint.owner == request,
    }[move.hold]
    return (
        has_engine
        and (not move.request or joint.lives[request] in move.request)
        and (not move.boundary or joint.boundary in move.boundary)
        and (not move.sink or joint.sinks[request] in move.sink)
    )


def is_good(move: Move) -> bool:
    """Whether the server makes this move for a request that nobody gives up, and stays hot."""
    unclean = BoundaryEvent.INVALIDATE in move.fires_boundary and move.step is not Step.REBUILD
    return move.step not in CLIENTS | UNHAPPY and not unclean


def broken_laws(edge: Edge) -> Iterator[str]:
    """What this edge breaks of G1, G2, G3 and G6, in words."""
    yield from _one_owner(edge)
    yield from _never_leading(edge)
    yield from _one_ending(edge)


def _one_owner(edge: Edge) -> Iterator[str]:
    running = [i for i, life in enumerate(edge.after.lives) if life in RUNNING]
    if running != ([] if edge.after.owner is None else [edge.after.owner]):
        yield f"G1: running {running}, but the engine is held by {edge.after.owner}"
    if edge.move.fires_boundary and edge.request not in (edge.before.owner, edge.after.owner):
        yield "G1: the boundary was moved by a request that does not have the engine"


def _never_leading(edge: Edge) -> Iterator[str]:
    before, after, step = edge.before.boundary, edge.after.boundary, edge.move.step
    was, now = edge.before.lives[edge.request], edge.after.lives[edge.request]
    if BoundaryEvent.PREFILL in edge.move.fires_boundary and before not in IDLE:
        yield f"G2: reading goes on from a state that is {before.name}"
    if edge.after.owner is None and after not in IDLE:
        yield f"G2: nobody has the engine, and the boundary is {after.name}"
    if was in RUNNING and now not in {*RUNNING, Life.DONE} and after is not Boundary.NOTHING:
        yield f"G2: {now.name} left a state that is {after.name}"
    if (
        was in RUNNING
        and now is Life.DONE
        and before is Boundary.LEADING
        and after is not Boundary.NOTHING
    ):
        yield f"G2: DONE before its commit left a state that is {after.name}"
    if was not in RUNNING and now not in RUNNING and before is not after:
        yield "G2: a request that does not run moved the boundary"
    if step is Step.CANCEL and was in RUNNING and before is Boundary.LEADING:
        yield "G3: cancelled between two boundaries"


def _one_ending(edge: Edge) -> Iterator[str]:
    was, now = edge.before.lives[edge.request], edge.after.lives[edge.request]
    if was in LIFECYCLE.terminal and now is not was:
        yield f"G6: {was.name} became {now.name}"
    if (now in LIFECYCLE.terminal) != (edge.after.sinks[edge.request] in SINK.terminal):
        yield f"G6: {now.name}, but its sink is {edge.after.sinks[edge.request].name}"
    if edge.move.fires_sink is SinkEvent.DELTA and was is not Life.DECODE:
        yield f"G6: a delta of a request in {was.name}"
    if edge.move.fires_sink is SinkEvent.END and was in LIFECYCLE.terminal:
        yield "G6: a second ending"


def replaced(values: tuple, at: int, value: object) -> tuple:
    """`values` with another one at one place."""
    return (*values[:at], value, *values[at + 1 :])


def changed(
    moves: Iterable[Move],
    step: Step,
    request: Life | None = None,
    at: Boundary | None = None,
    /,
    **fields: object,
) -> tuple[Move, ...]:
    """The moves with other fields in the one row of `step` for these states."""
    rows = list(moves)
    (found,) = [
        number
        for number, move in enumerate(rows)
        if move.step is step
        and (request is None or request in move.request)
        and (at is None or at in move.boundary)
    ]
    rows[found] = attrs.evolve(rows[found], **fields)
    return tuple(rows)
