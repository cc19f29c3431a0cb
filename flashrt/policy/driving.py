"""Drives the steps of one piece of work on an engine, and hands out the events that they cause."""

from collections.abc import Callable, Generator

from flashrt.policy.steps import Step, StepResult, Tell
from flashrt.policy.turn import TurnEvent, Work

Perform = Callable[[Step], StepResult]
Batches = Generator[tuple[TurnEvent, ...], None, None]


def driven(steps: Work, events: list[TurnEvent], perform: Perform) -> Batches:
    """Perform every step; behind each, and at the end, the `events` that have come up since.

    A `Tell` hands them out earlier, and nobody performs it. Closing this iterator early closes the
    steps where they stand.
    """
    try:
        step = next(steps, None)
        while step is not None:
            yield _taken(events)
            step = _advance(steps, step, perform)
        yield _taken(events)
    finally:
        steps.close()
        events.clear()


def _advance(steps: Work, step: Step | Tell, perform: Perform) -> Step | Tell | None:
    """Perform one step and hand its result, or its exception, to the core."""
    try:
        try:
            result = None if isinstance(step, Tell) else perform(step)
        except Exception as error:
            return steps.throw(error)
        return steps.send(result)
    except StopIteration:
        return None


def _taken(events: list[TurnEvent]) -> tuple[TurnEvent, ...]:
    batch = tuple(events)
    events.clear()
    return batch
