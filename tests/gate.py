"""Parts that wait for a test: it decides where the engine stands, and when a prompt is rendered."""

import threading

from flashrt.chat.prompt import Prompt
from flashrt.chat.render import Renderer
from flashrt.chat.request import AgentRequest
from flashrt.policy.steps import Performer, Save, Step, StepResult, Weigh

WAIT_MAX_S = 20
"""Far more than any test takes to open a gate."""


class GatedPerformer(Performer):
    """Waits before every step that moves the state until the test lets it pass.

    `break_at`: step number → exception. Steps that only save pass, and are not counted.
    """

    def __init__(self, engine, break_at: dict[int, BaseException] | None = None) -> None:
        super().__init__(engine)
        self.steps: list[Step] = []
        self._permits = 0
        self._changed = threading.Condition()
        self._break_at = break_at or {}

    def allow(self, steps: int) -> None:
        """Let this many further steps pass."""
        with self._changed:
            self._permits += steps
            self._changed.notify()

    def close(self) -> None:
        """Take back every permit that is left; only while nothing runs."""
        with self._changed:
            self._permits = 0

    def perform(self, step: Step) -> StepResult:
        if isinstance(step, Weigh | Save):
            return super().perform(step)
        with self._changed:
            assert self._changed.wait_for(self._allowed, WAIT_MAX_S), f"nobody allowed {step}"
            self._permits -= 1
        self.steps.append(step)
        if len(self.steps) in self._break_at:
            raise self._break_at[len(self.steps)]
        return super().perform(step)

    def _allowed(self) -> bool:
        return self._permits > 0


class GatedRenderer(Renderer):
    """While it is held, every prompt waits in its helper thread."""

    def __init__(self, *parts) -> None:
        super().__init__(*parts)
        self._free = threading.Event()
        self._free.set()

    def hold(self) -> None:
        """Hold what comes from now on."""
        self._free.clear()

    def let_go(self) -> None:
        """Render what is held, and what comes."""
        self._free.set()

    def render(self, request: AgentRequest) -> Prompt:
        assert self._free.wait(WAIT_MAX_S), "nobody let it go"
        return super().render(request)
