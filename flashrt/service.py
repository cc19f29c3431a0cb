"""From a request to an admitted item: the seam between HTTP and the engine thread."""

import hashlib
import secrets
import time
import uuid
from collections.abc import Sequence

import attrs
import trio

from flashrt.chat.answer import Answer
from flashrt.chat.constrained import Constraints
from flashrt.chat.drafts import CallsInThinking
from flashrt.chat.prompt import Prompt
from flashrt.chat.render import Renderer
from flashrt.chat.request import AgentRequest
from flashrt.chat.shape import JsonShape
from flashrt.chat.thinking import Constrains
from flashrt.chat.tokenizer import Tokenizer
from flashrt.engine.protocol import SamplingParams
from flashrt.errors import (
    BadRequest,
    ClientLeft,
    FlashRTError,
    Refused,
    ServerStopping,
    Unavailable,
)
from flashrt.fsm.lifecycle import LIFECYCLE, Life, LifeEvent
from flashrt.fsm.server import SERVER, ServerEvent, ServerState
from flashrt.fsm.table import Machine
from flashrt.items import CancelToken, WorkItem
from flashrt.metrics.ledger import Ledger
from flashrt.metrics.prometheus import Exposition, Now, Series
from flashrt.metrics.record import RequestRecord
from flashrt.overview import Overview
from flashrt.policy.known import KnownConversations
from flashrt.policy.limits import Limits, retry_after_s
from flashrt.policy.turn import Turn
from flashrt.worker import EngineWorker

READY_STATUSES = {ServerState.READY: 200, ServerState.SOFT_DRAINING: 404}
"""What `/health/ready` tells a router; 503 in every other state, and then nothing is served."""

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
        self.state = Machine(SERVER)
        self._voice = voice
        self._constraints = constraints
        self._limits = limits
        self._ledger = ledger
        self._worker = worker
        self._calls_in_thinking = calls_in_thinking
        self._namespace_from = namespace_from
        self._render_limiter = trio.CapacityLimiter(RENDER_THREADS)
        self._overview = Overview(worker, ledger, self._render_limiter)
        self._known = KnownConversations(limits.max_active_sessions)
        self._exposition = Exposition(Series(ledger, self._now, model=card.model_id))

    async def open(self, request: AgentRequest, *, client: str, waiter: str = "") -> WorkItem:
        """Queue a request. Raises Refused: bad prompt or shape, too long, queue full, not ready.

        `client` names who asks (the API key's own salt); never shown, never logged. `waiter` names
        whose places in the queue are counted together.
        """
        self._turn_away_unless_serving()
        started = time.perf_counter()
        prompt, constraint = await self._prepare(request)
        tokenize_ms = (time.perf_counter() - started) * 1000
        item = self._item(request, prompt, constraint, tokenize_ms, client, waiter)
        try:
            self._refuse_unless_serving()
            self._refuse_unless_known(item.turn)
            self._limits.admit(
                len(prompt),
                waiting=self._worker.depth(),
                waiting_of_client=self._worker.waiting_of(waiter),
                retry_after_s=self._retry_after_s(),
            )
            self._worker.submit(item)
        except Refused as refusal:
            self._end(item.record, item.life, LifeEvent.REJECT, refusal)
            raise
        self._known.see(item.turn.namespace, prompt, item.turn.session_hint)
        return item

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

    def leave(self, item: WorkItem) -> None:
        """The handler is done with the item, whoever left first. Idempotent."""
        item.sink.leave()
        if not item.over:
            self._worker.leave(item)

    def drain(self) -> None:
        """Take no new requests; those that are here go on. There is no way back. Idempotent."""
        if self._current_state() in READY_STATUSES:
            self.state.fire(ServerEvent.DRAIN)

    def soft_drain(self, *, undo: bool = False) -> None:
        """Take no new conversations, or take them again. Raises Unavailable if all is lost."""
        self._refuse_unless_serving()
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
            "status": self._current_state().name.lower(),
            "model": self.card.model_id,
            "max_model_len": self.card.max_model_len,
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
    def capsule_budget_bytes(self) -> int:
        """What saved states may hold."""
        return int(str(self._ledger.capsules.get("budget_bytes", 0)))

    def ready(self) -> tuple[int, dict[str, object]]:
        """200 ready, 404 soft drain, 503 out (loading, draining, faulted)."""
        state = self._current_state()
        return READY_STATUSES.get(state, 503), {"status": state.name.lower()}

    @property
    def live(self) -> bool:
        """Whether the engine thread is alive."""
        return self._worker.alive

    # -- inside ----------------------------------------

    def _now(self) -> Now:
        running = self._worker.running is not None
        cache_bytes = {
            "segments": self._voice.renderer.held_bytes,
            "grammars": self._constraints.held_bytes,
            **self._worker.activity.held.cache_bytes,
        }
        return Now(self._current_state(), self._worker.depth(), int(running), cache_bytes)

    def _current_state(self) -> ServerState:
        if not self._worker.alive and ServerEvent.FAULT in SERVER.legal(self.state.state):
            self.state.fire(ServerEvent.FAULT)
        return self.state.state

    def _turn_away_unless_serving(self) -> None:
        """Before anything is spent on a prompt. It is a request like others, with a record."""
        try:
            self._refuse_unless_serving()
        except Unavailable as refusal:
            self._end(_new_record(), Machine(LIFECYCLE), LifeEvent.REJECT, refusal)
            raise

    def _refuse_unless_serving(self) -> None:
        state = self._current_state()
        if state not in READY_STATUSES:
            raise Unavailable(f"The server is {state.name.lower()}.", retry_after_s=5)

    def _refuse_unless_known(self, turn: Turn) -> None:
        """In a soft drain a conversation that is new here would have to leave again."""
        if self._current_state() is not ServerState.SOFT_DRAINING:
            return
        if not self._known.has(turn.namespace, turn.prompt, turn.session_hint):
            raise Unavailable(
                "This server is being drained and takes no new conversations; ask another one, or "
                "end the drain with `flashrt drain --undo`.",
                retry_after_s=1,
            )

    def _retry_after_s(self) -> int:
        """When a place in the queue is likely to be free."""
        served_s = [
            record.finished_at - record.started_at
            for record in self._ledger.recent
            if record.started_at is not None and record.finished_at is not None
        ]
        running = self._worker.running
        began = None if running is None else running.record.started_at
        return retry_after_s(served_s, 0.0 if began is None else time.perf_counter() - began)

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
            self._end(_new_record(), Machine(LIFECYCLE), LifeEvent.CANCEL, left)
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
            namespace=namespace(request, client, self._namespace_from),
            constraint=constraint,
            session_hint=request.hints.session,
            pin_prefix=request.pin_prefix,
            max_decode_ms=self._limits.max_decode_ms,
        )
        record = attrs.evolve(
            _new_record(),
            tokenize_ms=tokenize_ms,
            seed=sampling.seed,
            draft_tokens=sampling.draft_tokens,
            prompt_ids=prompt.ids,
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

    def _end(
        self,
        record: RequestRecord,
        life: Machine[Life, LifeEvent],
        event: LifeEvent,
        why: FlashRTError,
    ) -> None:
        """Close the record of a request that does not come to the queue."""
        record.terminal_state = life.fire(event)
        record.finished_at = time.perf_counter()
        record.fail(why)
        self._ledger.close(record)


def _new_record() -> RequestRecord:
    """The record of a request that comes in now."""
    now = time.time()
    return RequestRecord(uuid.uuid4().hex, int(now), time.perf_counter(), enqueued_unix_s=now)


def _reads_calls(request: AgentRequest) -> bool:
    """Whether calls may be in the answer; one that is JSON only may quote what looks like one."""
    match request.shape:
        case JsonShape(calls=None):
            return False
    return request.reads_calls


def _running(item: WorkItem) -> dict[str, object]:
    """The request that the engine works on; `leaving`: it ends at the next boundary."""
    return {
        "request_id": item.record.request_id,
        "state": item.life.state.name,
        "leaving": item.cancel.cancelled,
    }


NAMESPACE_SOURCES = {
    "default": ("prompt_cache_key", "cache_salt"),
    "cache_salt": ("cache_salt",),
    "api_key": (),
}
"""What names a namespace, the first that is given; the API key's own salt does, if nothing is."""


def namespace(request: AgentRequest, client: str, sources: str = "default") -> str:
    """Whose prefixes may be reused, by one of `NAMESPACE_SOURCES`.

    Each source has its own prefix, so that no value of one can name another's namespace.
    """
    for source in NAMESPACE_SOURCES[sources]:
        value = getattr(request.hints, source)
        if value is not None:
            return f"{source}:{_hashed(value)}"
    return f"client:{_hashed(client)}"


def _hashed(name: str) -> str:
    """A client's name may be as long as a body, and what it names is remembered for long."""
    return hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()
