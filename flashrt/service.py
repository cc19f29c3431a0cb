"""From a request to an admitted item: the seam between HTTP and the engine thread."""

import secrets
import time
import uuid
from collections.abc import Sequence
from functools import partial

import attrs
import trio

from flashrt.admission import READY_STATUSES, Admission, new_record
from flashrt.chat.answer import Answer
from flashrt.chat.constrained import Constraints
from flashrt.chat.drafts import CallsInThinking
from flashrt.chat.prompt import Prompt
from flashrt.chat.render import Renderer
from flashrt.chat.request import AgentRequest
from flashrt.chat.session_call import AnySessionCall
from flashrt.chat.shape import JsonShape
from flashrt.chat.thinking import Constrains
from flashrt.chat.tokenizer import Tokenizer
from flashrt.engine.protocol import SamplingParams
from flashrt.errors import AnswerCancelled, BadRequest, ClientLeft, ServerStopping
from flashrt.fsm.lifecycle import LIFECYCLE, LifeEvent
from flashrt.fsm.server import ServerEvent
from flashrt.fsm.table import Machine
from flashrt.items import CancelToken, Item, SessionItem, WorkItem
from flashrt.metrics.ledger import Ledger
from flashrt.metrics.prometheus import Exposition, Now, Series
from flashrt.namespaces import namespace
from flashrt.overview import Overview
from flashrt.policy.known import KnownConversations
from flashrt.policy.limits import Limits
from flashrt.policy.turn import Turn
from flashrt.session_desk import SessionDesk
from flashrt.stored import AnswerStore
from flashrt.worker import EngineWorker

RENDER_THREADS = 2
"""Prompts rendered at a time; rendering holds the GIL, so more would only wait."""


@attrs.frozen
class ModelCard:
    """What /v1/models says. `created`: unix seconds."""

    model_id: str
    max_model_len: int
    created: int


@attrs.frozen
class Voice:
    """How the served checkpoint speaks: its tokens, template, stops and sampling defaults."""

    tokenizer: Tokenizer
    renderer: Renderer
    stop_ids: frozenset[int]
    sampling_defaults: SamplingParams


class AgentService:
    """Renders, admits and queues requests; knows the server's state."""

    def __init__(
        self,
        *,
        card: ModelCard,
        voice: Voice,
        constraints: Constraints,
        limits: Limits,
        ledger: Ledger,
        worker: EngineWorker,
        calls_in_thinking: CallsInThinking = CallsInThinking.TAKE_LAST,
        namespace_from: str = "default",
    ) -> None:
        self.card = card
        self._voice = voice
        self._constraints = constraints
        self._limits = limits
        self._ledger = ledger
        self._worker = worker
        self._admission = Admission(limits=limits, worker=worker, ledger=ledger)
        self._sessions = SessionDesk(self._admission, namespace_from)
        self.answers = AnswerStore()
        self.state = self._admission.state
        self._calls_in_thinking = calls_in_thinking
        self._namespace_from = namespace_from
        self._render_limiter = trio.CapacityLimiter(RENDER_THREADS)
        self._opening = 0
        self._overview = Overview(worker, ledger, self._render_limiter)
        self._known = KnownConversations(limits.max_active_sessions)
        self._exposition = Exposition(Series(ledger, self._now, model=card.model_id))

    async def open(self, request: AgentRequest, *, client: str, waiter: str = "") -> WorkItem:
        """Queue a request. Raises Refused: bad prompt or shape, too long, queue full, not ready.

        `client` names who asks (the API key's own salt); never shown, never logged. `waiter` names
        whose places in the queue are counted together.
        """
        self._admission.turn_away_unless_serving()
        self._opening += 1
        try:
            started = time.perf_counter()
            prompt, constraint = await self._prepare(request)
            tokenize_ms = (time.perf_counter() - started) * 1000
            item = self._item(request, prompt, constraint, tokenize_ms, client, waiter)
            known = partial(self._known.has, item.turn.namespace, prompt, item.turn.session_hint)
            self._admission.admit(item, known, len(prompt))
        finally:
            self._opening -= 1
        self._known.see(item.turn.namespace, prompt, item.turn.session_hint)
        return item

    def call(self, call: AnySessionCall, *, client: str, waiter: str = "") -> SessionItem:
        """Queue a session call. Raises Refused as `open` does."""
        return self._sessions.open(call, client=client, waiter=waiter)

    @property
    def epoch_s(self) -> float:
        """The unix time at which the clock of session reports began."""
        return self._sessions.epoch_s

    async def tokens(self, request: AgentRequest) -> tuple[int, ...]:
        """The ids of a request's prompt, without serving it. Raises BadRequest."""
        prompt = await trio.to_thread.run_sync(
            self._voice.renderer.render, request, limiter=self._render_limiter
        )
        return prompt.ids

    @property
    def token_texts(self) -> Tokenizer:
        """How ids are written."""
        return self._voice.tokenizer

    async def text(self, ids: Sequence[int]) -> str:
        """Ids as text, control tokens written out. Raises BadRequest for an id that is none."""
        tokenizer = self._voice.tokenizer
        if ids and max(ids) >= tokenizer.vocab_size:
            raise BadRequest(
                f"`tokens` holds {max(ids)}; this model's vocabulary has the ids 0 to "
                f"{tokenizer.vocab_size - 1}.",
                param="tokens",
            )
        return await trio.to_thread.run_sync(tokenizer.decode, ids, limiter=self._render_limiter)

    def leave(self, item: Item) -> None:
        """The handler is done with the item, whoever left first. Idempotent."""
        item.sink.leave()
        if not item.over:
            self._worker.leave(item)

    def cancel(self, item: Item) -> None:
        """End an answer whose client is still there and is told: at once while it waits, else at
        the next boundary. Idempotent."""
        item.cancel.cancel(AnswerCancelled("The answer was cancelled."))
        if not item.over:
            self._worker.leave(item)

    def drain(self) -> None:
        """Take no new requests; those that are here go on. There is no way back. Idempotent."""
        if self._admission.current_state() in READY_STATUSES:
            self.state.fire(ServerEvent.DRAIN)

    def soft_drain(self, *, undo: bool = False) -> None:
        """Take no new conversations, or take them again. Raises Unavailable if all is lost."""
        self._admission.refuse_unless_serving()
        self.state.fire(ServerEvent.UNDRAIN if undo else ServerEvent.SOFT_DRAIN)

    def cut_off(self) -> None:
        """End every request that is still here: those that wait at once, the running one at its
        next boundary. Each gets its one ending, an error."""
        self._worker.cut_off(
            ServerStopping(
                "The server is stopping, and this answer was not over in the time that "
                "--graceful-timeout-s gives; ask again.",
                retry_after_s=5,
            )
        )

    def health(self) -> dict[str, object]:
        """What the server is doing now; answers whatever the engine does."""
        running = self._worker.running
        return {
            "status": self._admission.current_state().name.lower(),
            "model": self.card.model_id,
            "max_model_len": self.card.max_model_len,
            "rendering": self._opening,
            "queued": self._worker.depth(),
            "running": None if running is None else _running(running),
            "capsules": dict(self._ledger.capsules),
            "totals": self._ledger.report(),
        }

    def activity(self) -> dict[str, object]:
        """What it does at this moment, request by request: for clients that have a key."""
        return self._overview.report()

    def metrics(self) -> bytes:
        """The same and more, for Prometheus, in its text format."""
        return self._exposition.text()

    @property
    def capsule_budgets(self) -> tuple[int, ...]:
        """Bytes that saved states may hold: in the engine's memory, on the host, on disk."""
        names = ("budget_bytes", "host_budget_bytes", "disk_budget_bytes")
        return tuple(int(str(self._ledger.capsules.get(name, 0))) for name in names)

    def ready(self) -> tuple[int, dict[str, object]]:
        """200 ready, 404 soft drain, 503 out (loading, draining, faulted)."""
        state = self._admission.current_state()
        return READY_STATUSES.get(state, 503), {"status": state.name.lower()}

    @property
    def live(self) -> bool:
        """Whether the engine thread is alive."""
        return self._worker.alive

    # -- inside ----------------------------------------

    def _now(self) -> Now:
        running = self._worker.running is not None
        cache_bytes = {
            **self._voice.renderer.cache_bytes,
            "grammars": self._constraints.held_bytes,
            "answers": self.answers.held_bytes,
            **self._worker.activity.held.cache_bytes,
        }
        return Now(self._admission.current_state(), self._worker.depth(), int(running), cache_bytes)

    async def _prepare(self, request: AgentRequest) -> tuple[Prompt, Constrains | None]:
        """Prompt and constraint. A client that leaves meanwhile ends here, with a record, and never
        reaches the engine, which would park a state for it that others go on with."""
        try:
            prepared = await trio.to_thread.run_sync(
                self._prepared, request, limiter=self._render_limiter
            )
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            left = ClientLeft("The client left.")
            self._admission.end(new_record(), Machine(LIFECYCLE), LifeEvent.CANCEL, left)
            raise
        return prepared

    def _prepared(self, request: AgentRequest) -> tuple[Prompt, Constrains | None]:
        """What takes time, in a helper thread: the prompt, and the constraint compiled."""
        prompt = self._voice.renderer.render(request)
        return prompt, self._constraints.of(request, prompt)

    def _item(
        self,
        request: AgentRequest,
        prompt: Prompt,
        constraint: Constrains | None,
        tokenize_ms: float,
        client: str,
        waiter: str,
    ) -> WorkItem:
        sampling = self._sampling(request)
        max_tokens = self._limits.output_tokens(len(prompt), request.max_tokens)
        cancel = CancelToken()
        turn = Turn(
            prompt=prompt,
            sampling=sampling,
            answer=self._answer(request, prompt, max_tokens),
            cancel=cancel,
            namespace=namespace(request.hints, client, self._namespace_from),
            constraint=constraint,
            session_hint=request.hints.flashrt_session or request.hints.session,
            pin_prefix=request.pin_prefix,
            max_decode_ms=self._limits.max_decode_ms,
        )
        record = attrs.evolve(
            new_record(),
            tokenize_ms=tokenize_ms,
            seed=sampling.seed,
            draft_tokens=sampling.draft_tokens,
            prompt_ids=prompt,
        )
        return WorkItem(
            request=request, prompt=prompt, turn=turn, record=record, cancel=cancel, waiter=waiter
        )

    def _answer(self, request: AgentRequest, prompt: Prompt, max_tokens: int) -> Answer:
        return Answer(
            tokenizer=self._voice.tokenizer,
            stop_ids=self._voice.stop_ids,
            stop_strings=request.stop,
            max_tokens=max(max_tokens, 1),
            reads_structure=request.is_chat,
            strips_content=self._voice.renderer.strips_content,
            opens_thinking=prompt.opens_thinking,
            tools=request.tools if _reads_calls(request) else (),
            new_call_id=lambda: f"call_{uuid.uuid4().hex[:24]}",
            calls_in_thinking=self._calls_in_thinking,
        )

    def _sampling(self, request: AgentRequest) -> SamplingParams:
        """The client's wishes over the checkpoint's defaults; without a seed, a fresh one."""
        wish = attrs.asdict(request.sampling)
        wishes = {name: value for name, value in wish.items() if value is not None}
        wishes.setdefault("seed", secrets.randbits(31))
        return attrs.evolve(
            self._voice.sampling_defaults,
            stop_ids=self._voice.stop_ids,
            draft_tokens=self._limits.draft_tokens(request.draft_tokens),
            **wishes,
        )


def _reads_calls(request: AgentRequest) -> bool:
    """Whether calls may be in the answer; one that is JSON only may quote what looks like one."""
    match request.shape:
        case JsonShape(calls=None):
            return False
    return request.reads_calls


def _running(item: Item) -> dict[str, object]:
    """The request that the engine works on; `leaving`: it ends at the next boundary."""
    return {
        "request_id": item.record.request_id,
        "state": item.life.state.name,
        "leaving": item.cancel.cancelled,
    }
