"""Turns of id prompts on the fake engine: what a policy sees of a served request."""

from collections.abc import Callable, Sequence

import attrs

from flashrt.chat.prompt import Prompt
from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import SamplingParams
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.cuts import CutRule
from flashrt.policy.prefix import PrefixPlan
from flashrt.policy.sessions import SessionRegistry
from flashrt.policy.shelf import Shelf
from flashrt.policy.steps import Performer, Step, StepResult
from flashrt.policy.turn import Planned, Turn, TurnEvent
from flashrt.policy.turn_loop import TurnLoop
from tests.answers import IdAnswer

OPEN, END_A, END_B = 60, 61, 62
"""Ids that open a system turn, and that end a turn together."""

ROOM = 10**9


@attrs.define
class Flag:
    """A cancel token."""

    cancelled: bool = False


@attrs.frozen
class Served:
    """What came of one request."""

    events: tuple[TurnEvent, ...]
    ids: tuple[int, ...]

    @property
    def plan(self) -> PrefixPlan:
        return next(event.plan for event in self.events if isinstance(event, Planned))

    @property
    def action(self) -> str:
        return self.plan.action.value

    def of(self, kind: type) -> list:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


class Server:
    """A turn loop on a fake engine; conversations end a turn with END_A END_B."""

    def __init__(
        self,
        budget: int = ROOM,
        chunk: int = 64,
        idle_ttl_s: float = 0.0,
        host: int = 0,
        shelf: Shelf | None = None,
        **engine: int,
    ) -> None:
        self.engine = FakeEngine(**{"vocab_size": 64, "max_seq": 4096, **engine})
        self.now = 0.0
        self.policy = AutoPrefixPolicy(
            max_seq=self.engine.info.max_seq,
            store=CapsuleStore(budget, host, self.engine, shelf),
            sessions=SessionRegistry(idle_ttl_s=idle_ttl_s, clock=self._clock),
        )
        rule = CutRule(chunk, (OPEN,), (END_A, END_B))
        self.loop = TurnLoop(self.policy, rule, clock=self._clock)
        self.performer = Performer(self.engine)

    def serve(
        self,
        prompt: Sequence[int] | Prompt,
        length: int = 3,
        *,
        namespace: str = "a",
        hint: str | None = None,
        pin: int | bool | None = None,
        cancel: Flag | None = None,
        perform: Callable[[Step], StepResult] | None = None,
        max_decode_ms: float = 0.0,
    ) -> Served:
        answer = IdAnswer(length)
        turn = Turn(
            prompt=prompt if isinstance(prompt, Prompt) else Prompt.from_ids(prompt),
            sampling=SamplingParams(),
            answer=answer,
            cancel=cancel or Flag(),
            namespace=namespace,
            session_hint=hint,
            pin_prefix=pin,
            max_decode_ms=max_decode_ms,
        )
        events = [
            event
            for batch in self.loop.run(turn, perform or self.performer.perform)
            for event in batch
        ]
        return Served(tuple(events), tuple(answer.ids))

    def _clock(self) -> float:
        return self.now


def said(*ids: int) -> tuple[int, ...]:
    """A user's turn and the beginning of the next one."""
    return (*ids, END_A, END_B, 50)


def opening(*ids: int) -> tuple[int, ...]:
    """A system turn."""
    return (OPEN, *ids, END_A, END_B)
