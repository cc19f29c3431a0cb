"""Builds everything and holds the nurseries: the only file that names a concrete engine.

main nursery
├─ the engine thread (EngineWorker.run)     outlives HTTP, so no last commit is cut off
├─ signals                                  SIGTERM and SIGINT ask for a drain
├─ the end of the grace time                ends what is not over by then
└─ HTTP (serve_app)                         one nursery per request inside
"""

import logging
import os
import secrets
import signal
import sys
import time
from functools import partial
from pathlib import Path

import attrs
import trio

from flashrt import __version__
from flashrt.allocator import give_back, settle
from flashrt.budget import capsule_budget_bytes
from flashrt.chat.constrained import Constraints
from flashrt.chat.drafts import CallsInThinking
from flashrt.chat.render import Renderer
from flashrt.chat.template import Template
from flashrt.chat.tokenizer import Tokenizer
from flashrt.demo import DEMO_PATH
from flashrt.engine.assets import find_model, read_generation_defaults, read_stop_ids
from flashrt.engine.drafting.lookup import PROPOSED_MAX
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.memory import planned
from flashrt.engine.placement import Placement, block_tokens, free_bytes
from flashrt.engine.protocol import Engine, EngineInfo, SamplingParams
from flashrt.fsm.server import ServerEvent
from flashrt.http.app import make_app
from flashrt.http.options import HttpOptions
from flashrt.http.server import Address, serve_app
from flashrt.metrics.ledger import Ledger
from flashrt.metrics.request_log import RequestLog
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.cuts import CutRule
from flashrt.policy.limits import Limits
from flashrt.policy.sessions import SessionRegistry
from flashrt.policy.steps import Performer
from flashrt.policy.turn_loop import TurnLoop
from flashrt.service import AgentService, ModelCard, Voice
from flashrt.settings import Settings
from flashrt.storing import capsule_store, disk_shelf, headroom_bytes, refuse_conflicts
from flashrt.tending import Tending
from flashrt.worker import EngineWorker

log = logging.getLogger("flashrt")

ENDINGS_S = 10.0
"""How long after the grace time connections live on: until the engine's next boundary, where the
running answer is ended, and the last error event has been written."""

SWITCH_INTERVAL_S = 0.0005
"""With Python's 5 ms the loop waits for the engine thread's interpreter lock at every event."""


def run(settings: Settings) -> int:
    """Load, serve until told to stop, and return the process's exit status.

    Raises CannotServe for what cannot be served; status 1 means that the engine died.
    """
    refuse_conflicts(settings)
    if settings.request_log:
        # Weights may take minutes to load; whether it can be written is known at once.
        RequestLog.open(settings.request_log)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(name)s %(message)s")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    path = find_model(settings.model) if settings.model else DEMO_PATH
    place = Placement.of(settings.device, settings.dtype, settings.kv_cache_dtype)
    voice = load_voice(path)
    memory = planned(
        path,
        place,
        max_seq=settings.max_seq or None,
        block_tokens=block_tokens(str(place.device), settings.chunk_tokens),
        capsules=None if settings.capsule_budget_mb < 0 else settings.capsule_budget_mb << 20,
    )
    print(f"memory    {memory.words()}", flush=True)
    engine = HybridEngine.load(
        path,
        device=place.device,
        dtype=place.dtype,
        kv_dtype=place.kv_dtype,
        max_seq=memory.max_seq,
        threads=settings.threads or max(1, len(os.sched_getaffinity(0)) - 1),
        sampleable=voice.tokenizer.vocab_size,
        draft_tokens_max=settings.draft_tokens_max,
    )
    settle()
    return trio.run(partial(serve, settings, voice, engine, step_bytes=memory.step))


def load_voice(path: Path) -> Voice:
    """Tokenizer, template, stop ids and sampling defaults of a checkpoint directory."""
    tokenizer = Tokenizer.load(path)
    template = Template.load(path, tokenizer.control, tokenizer.named_tokens)
    recommended = attrs.asdict(read_generation_defaults(path))
    known = {name: value for name, value in recommended.items() if value is not None}
    return Voice(
        tokenizer=tokenizer,
        renderer=Renderer(tokenizer, template),
        stop_ids=read_stop_ids(path),
        sampling_defaults=SamplingParams(**{"temperature": 1.0, **known}),
    )


async def serve(
    settings: Settings,
    voice: Voice,
    engine: Engine,
    *,
    performer: Performer | None = None,
    step_bytes: int = 0,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
) -> int:
    """Serve `engine` until a signal, then drain; the exit status.

    `performer`: what carries out the engine's steps, if not a plain one. `step_bytes`: memory that
    a step may take by itself, which saved states leave alone.
    """
    worker, service = assemble(settings, voice, performer or Performer(engine), step_bytes)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(_engine_thread, worker, stop)
        nursery.start_soon(worker.expire)
        nursery.start_soon(_stop_on_signal, service, stop)
        nursery.start_soon(_end_grace, service, settings.graceful_timeout_s, stop)
        service.state.fire(ServerEvent.LOADED)
        async with trio.open_nursery() as http:
            options = _http_options(settings)
            app = make_app(service, options)
            address: Address = await http.start(partial(serve_app, app, options, stop=stop))
            _announce(settings, engine, service, address)
            task_status.started(address)
        service.state.fire(ServerEvent.STOP)
        await worker.park(settings.parking_s)
        nursery.cancel_scope.cancel()
    return 0 if worker.alive else 1


def assemble(
    settings: Settings, voice: Voice, performer: Performer, step_bytes: int = 0
) -> tuple[EngineWorker, AgentService]:
    """Wire one engine to one service."""
    info = performer.engine.info
    limits = _limits(settings, info, step_bytes)
    shelf = disk_shelf(settings, info)
    store = capsule_store(settings, limits, performer.engine, shelf)
    turns = _turns(block_tokens(info.device, settings.chunk_tokens), voice, limits, store)
    request_log = RequestLog.open(settings.request_log) if settings.request_log else None
    ledger = Ledger(request_log, capsules=turns.policy.store.report())
    worker = EngineWorker(
        performer,
        turns,
        max_queue_depth=limits.max_queue_depth,
        queue_timeout_s=limits.queue_timeout_s,
        ledger=ledger,
        tidy=give_back,
        tending=Tending(
            turns,
            shelf,
            identity=info.identity,
            headroom_bytes=headroom_bytes(limits, info),
            idle_ttl_s=settings.session_idle_ttl_s,
        ),
    )
    card = ModelCard(settings.model_name or info.model_name, info.max_seq, int(time.time()))
    service = AgentService(
        card=card,
        voice=voice,
        constraints=Constraints(voice.tokenizer, info.vocab_size, voice.stop_ids),
        limits=limits,
        ledger=ledger,
        worker=worker,
        calls_in_thinking=CallsInThinking(settings.calls_in_thinking),
        namespace_from=settings.namespace_from,
    )
    return worker, service


def _limits(settings: Settings, info: EngineInfo, step_bytes: int) -> Limits:
    """The bounds of this server: what was asked for, and what window and memory allow."""
    budget = capsule_budget_bytes(
        settings.capsule_budget_mb,
        free_bytes=free_bytes(info.device),
        on_gpu=info.on_gpu,
        step_bytes=step_bytes,
    )
    window = info.max_seq - 1
    return Limits(
        max_seq=info.max_seq,
        max_prompt_tokens=min(settings.max_prompt_tokens or window, window),
        max_output_tokens=settings.max_output_tokens or info.max_seq,
        max_queue_depth=settings.max_queue_depth,
        queue_per_client=settings.queue_per_client,
        queue_timeout_s=settings.queue_timeout_s,
        max_decode_ms=settings.max_decode_ms,
        max_active_sessions=settings.max_active_sessions,
        session_idle_ttl_s=settings.session_idle_ttl_s,
        capsule_budget_bytes=budget,
        draft_tokens_max=info.draft_tokens_max if info.drafters else 0,
    )


def _turns(chunk_tokens: int, voice: Voice, limits: Limits, store: CapsuleStore) -> TurnLoop:
    """The policy, with the room that conversations and saved states may take."""
    policy = AutoPrefixPolicy(
        max_seq=limits.max_seq,
        store=store,
        sessions=SessionRegistry(
            limits.max_active_sessions,
            limits.session_idle_ttl_s,
            time.monotonic,
            new_name=lambda: f"sess_{secrets.token_hex(12)}",
        ),
    )
    marks = voice.renderer.turn_marks
    rule = CutRule(chunk_tokens, marks.system_open, marks.turn_end)
    return TurnLoop(policy, rule, time.monotonic)


async def _engine_thread(
    worker: EngineWorker,
    stop: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """A fault of the thread drains the server; raising here would cut off the error events."""
    try:
        await worker.run(task_status=task_status)
    except Exception:
        log.exception("the engine thread has died; the server stops")
        stop.set()


async def _stop_on_signal(service: AgentService, stop: trio.Event) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            service.drain()
            stop.set()


async def _end_grace(service: AgentService, grace_s: float, stop: trio.Event) -> None:
    await stop.wait()
    await trio.sleep(grace_s)
    service.cut_off()


def _http_options(settings: Settings) -> HttpOptions:
    options = settings.http_options()
    cut_s = options.graceful_timeout_s + ENDINGS_S
    return attrs.evolve(options, version=__version__, graceful_timeout_s=cut_s)


def _announce(settings: Settings, engine: Engine, service: AgentService, address: Address) -> None:
    info = engine.info
    where = f"{info.dtype} on {info.device}"
    if info.kv_dtype not in ("", info.dtype):
        where += f", keys and values in {info.kv_dtype}"
    print(f"serving   {service.card.model_id} ({where}), window {info.max_seq} tokens")
    print(f"drafts    {_drafts(info)}")
    print(f"capsules  {_capsules(settings, service)}")
    for part in info.unused:
        print(f"unused    {part}")
    print(f"listening {address.url}   (health: {address.url}/health)")
    key = "the key of --api-key-file" if settings.has_keys else "any"
    print(f"clients   OPENAI_BASE_URL={address.url}/v1 OPENAI_API_KEY={key}", flush=True)


def _capsules(settings: Settings, service: AgentService) -> str:
    """How much room saved states have, in words."""
    device, host, disk = (mib >> 20 for mib in service.capsule_budgets)
    words = (
        f"up to {device} MiB of saved states" if device else "none: only the live state is reused"
    )
    words += f", {host} MiB on the host" if host else ""
    return words + (f", {disk} MiB in {settings.disk_capsule_dir}" if disk else "")


def _drafts(info: EngineInfo) -> str:
    """Who drafts, in words."""
    words = {
        "mtp": f"MTP layer (up to {info.draft_tokens_max} tokens a step)",
        "lookup": f"prompt lookup (up to {PROPOSED_MAX})",
    }
    if not info.draft_tokens_max or not info.drafters:
        return "none"
    return " and ".join(words.get(name, name) for name in info.drafters)
