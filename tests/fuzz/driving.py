"""Hypothesis around an async check, and what a trio run holds."""

import logging
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

T = TypeVar("T")

SETTLED_WITHIN_S = 10


async def for_all(
    strategy: st.SearchStrategy[T], check: Callable[[T], Awaitable[None]], *, examples: int
) -> None:
    """Check generated values one after another inside this run, beside the server in it.

    Hypothesis itself is in a helper thread, since it calls only what is not async.
    """

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def drive(value: T) -> None:
        trio.from_thread.run(check, value)

    await trio.to_thread.run_sync(drive)


@attrs.frozen
class Held:
    """What this process holds for its connections."""

    tasks: int
    descriptors: int

    @classmethod
    def now(cls) -> "Held":
        """Every task of this trio run, and every open file."""
        tasks = [trio.lowlevel.current_root_task()]
        for task in tasks:
            tasks += (child for nursery in task.child_nurseries for child in nursery.child_tasks)
        return cls(len(tasks), len(os.listdir("/proc/self/fd")))


async def settled(start: Held) -> None:
    """Wait until no more is held than at the start. Raises TooSlowError."""
    with trio.fail_after(SETTLED_WITHIN_S):
        while Held.now().tasks > start.tasks or Held.now().descriptors > start.descriptors:
            await trio.lowlevel.checkpoint()


def faults_in(log: pytest.LogCaptureFixture) -> list[str]:
    """What the server has logged as its own faults."""
    return [record.getMessage() for record in log.records if record.levelno >= logging.ERROR]
