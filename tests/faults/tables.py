"""Faults in the tables of `flashrt/fsm/`."""

from tests.faults.fault import Fault

SPECS = ("tests/specs",)

FAULTS = (
    Fault(
        "a table drifts from its specification",
        "flashrt/fsm/lifecycle.py",
        "(Life.QUEUED, LifeEvent.REJECT): Life.REJECTED",
        "(Life.QUEUED, LifeEvent.REJECT): Life.ERROR",
        SPECS,
        "a request that waited too long would be reported as a failure of ours",
    ),
    Fault(
        "a row that nobody wrote down",
        "flashrt/fsm/server.py",
        "(ServerState.READY, ServerEvent.FAULT): ServerState.FAULTED,",
        "(ServerState.READY, ServerEvent.FAULT): ServerState.FAULTED,\n"
        "        (ServerState.READY, ServerEvent.STOP): ServerState.STOPPED,",
        SPECS,
        "a stop would cut off the answers under way",
    ),
    Fault(
        "an illegal event that moves the machine",
        "flashrt/fsm/table.py",
        "        if after is None:\n            legal",
        "        if after is None:\n            self.state = self.table.initial\n            legal",
        SPECS,
        "a bug in one request would leave the next one somewhere else",
    ),
    Fault(
        "a second ending",
        "flashrt/fsm/sink.py",
        "(SinkState.ENDED, SinkEvent.LEAVE): SinkState.ENDED,",
        "(SinkState.ENDED, SinkEvent.LEAVE): SinkState.ENDED,\n"
        "        (SinkState.ENDED, SinkEvent.END): SinkState.ENDED,",
        SPECS,
        "a stream could end twice (G6), an error after its normal stop",
    ),
    Fault(
        "an invalidate that stays hot",
        "flashrt/fsm/boundary.py",
        "(Boundary.COMMITTED, BoundaryEvent.INVALIDATE): Boundary.NOTHING",
        "(Boundary.COMMITTED, BoundaryEvent.INVALIDATE): Boundary.COMMITTED",
        SPECS,
        "a cancelled answer could be attached to (G2)",
    ),
    Fault(
        "a start that does not wait for the engine",
        "flashrt/fsm/moves.py",
        "Move(Step.START, _in(Life.QUEUED), Hold.TAKES, _IDLE, fires_life=LifeEvent.START)",
        "Move(Step.START, _in(Life.QUEUED), Hold.TAKES, fires_life=LifeEvent.START)",
        SPECS,
        "a request could start on a state that leads its journal",
    ),
    Fault(
        "a table that is not checked",
        "flashrt/fsm/table.py",
        'yield f"terminal {state.name} has a way out"',
        "pass",
        ("tests/fsm/test_table.py",),
        "a request could be over, and then not",
    ),
)
