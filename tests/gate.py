"""A performer that takes one step for each permit: a test decides where the engine stands."""

import threading

from flashrt.policy.steps import Performer, Save, Step, StepResult, Weigh


class GatedPerformer(Performer):
    """Waits before every step that moves the state until the test lets it pass.

    `break_at`: step number → exception. Steps that only save pass, and are not counted.
    """

    def __init__(self, engine, break_at: dict[int, BaseException] | None = None) -> None:
        super().__init__(engine)
        self.steps: list[Step] = []
        self._permits = threading.Semaphore(0)
        self._break_at = break_at or {}

    def allow(self, steps: int) -> None:
        """Let this many further steps pass."""
        self._permits.release(steps)

    def close(self) -> None:
        """Take back every permit that is left; only while nothing runs."""
        while self._permits.acquire(blocking=False):
            pass

    def perform(self, step: Step) -> StepResult:
        if isinstance(step, Weigh | Save):
            return super().perform(step)
        assert self._permits.acquire(timeout=20), f"nobody allowed {step}"
        self.steps.append(step)
        if len(self.steps) in self._break_at:
            raise self._break_at[len(self.steps)]
        return super().perform(step)
