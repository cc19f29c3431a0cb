"""From a request to an admitted item."""

import threading
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
import trio.testing

from flashrt.chat.constrained import Constraints
from flashrt.chat.guide import Guide
from flashrt.chat.request import AgentRequest, CacheHints, SamplingWish
from flashrt.chat.shape import JsonShape
from flashrt.engine.fake import FakeEngine
from flashrt.errors import BadRequest, PromptTooLong, QueueFull, Unavailable
from flashrt.fsm.lifecycle import Life
from flashrt.fsm.server import ServerEvent
from flashrt.items import Failed, Finished
from flashrt.namespaces import namespace
from flashrt.policy.capsules import COUNTS
from flashrt.policy.steps import Performer
from flashrt.serve import assemble
from flashrt.service import RENDER_THREADS
from flashrt.settings import Settings
from tests.whole.server import VOICE
from tests.whole.stage import RENDERER


def assembled(*, burst_max=1, max_seq=128, **wish):
    """A worker that nobody runs yet, on a fake engine, and its ready service."""
    engine = FakeEngine(vocab_size=VOICE.tokenizer.vocab_size, max_seq=max_seq, burst_max=burst_max)
    worker, desk = assemble(Settings(**wish), VOICE, Performer(engine))
    desk.state.fire(ServerEvent.LOADED)
    return worker, desk


def service(**wish):
    """A ready service on a fake engine that nobody runs."""
    return assembled(**wish)[1]


@asynccontextmanager
async def asking(**wish):
    """A service whose worker runs while the block does, and a function that asks it to the end."""
    worker, desk = assembled(max_seq=4096, **wish)

    async def ask(system, user, **also):
        messages = ({"role": "system", "content": system}, {"role": "user", "content": user})
        item = await desk.open(AgentRequest("m", messages, max_tokens=4, **also), client="")
        ends = [piece async for piece in item.sink if isinstance(piece, Finished | Failed)]
        assert [type(end) for end in ends] == [Finished]
        return item

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(worker.run)
            yield desk, ask
            nursery.cancel_scope.cancel()


def ids_request(count=5, **wish):
    return AgentRequest(model="m", ids=tuple([9] * count), **wish)


async def test_an_admitted_item_is_queued_with_its_prompt_and_wishes():
    """The wishes win over the checkpoint's defaults, which fill the rest."""
    desk = service()
    request = ids_request(sampling=SamplingWish(temperature=0.25, seed=5), max_tokens=7)
    item = await desk.open(request, client="")
    assert item.life.state is Life.QUEUED
    assert desk.health()["queued"] == 1
    assert item.turn.sampling.temperature == 0.25
    assert item.turn.sampling.top_k == VOICE.sampling_defaults.top_k
    assert item.turn.sampling.stop_ids == VOICE.stop_ids
    assert item.record.seed == 5


@pytest.mark.parametrize(
    ("burst_max", "wish", "used"),
    [(9, None, None), (9, 0, 0), (9, 5, 5), (9, 63, 8), (1, None, 0), (1, 5, 0)],
)
async def test_a_wish_for_drafts_reaches_the_engine_clipped(burst_max, wish, used):
    """What the engine is told is what the record says was used."""
    item = await service(burst_max=burst_max).open(ids_request(draft_tokens=wish), client="")
    assert item.turn.sampling.draft_tokens == item.record.draft_tokens == used


async def test_without_a_seed_each_request_gets_its_own_and_reports_it():
    """So that any answer can be asked for again."""
    desk = service()
    items = [await desk.open(ids_request(), client="") for _ in range(3)]
    seeds = {item.record.seed for item in items}
    assert len(seeds) == 3
    assert {item.turn.sampling.seed for item in items} == seeds


@pytest.mark.parametrize(("count", "admitted"), [(127, True), (128, False), (500, False)])
async def test_the_window_is_the_border(count, admitted):
    """What leaves no room for one token is refused and recorded as REJECTED."""
    desk = service()
    if admitted:
        await desk.open(ids_request(count), client="")
        return
    with pytest.raises(PromptTooLong):
        await desk.open(ids_request(count), client="")
    assert desk.health()["totals"]["requests"] == {"REJECTED": 1}


async def test_a_full_queue_is_429():
    """One more than --max-queue-depth."""
    desk = service(max_queue_depth=1)
    await desk.open(ids_request(), client="")
    with pytest.raises(QueueFull):
        await desk.open(ids_request(), client="")


async def test_a_bad_prompt_is_refused_before_it_is_an_item():
    """Ids outside the vocabulary."""
    with pytest.raises(BadRequest):
        await service().open(AgentRequest(model="m", ids=(10**9,)), client="")


async def test_a_draining_server_takes_nothing_new():
    """503 and a reason; what is queued stays."""
    desk = service()
    await desk.open(ids_request(), client="")
    desk.drain()
    desk.drain()
    assert desk.ready()[0] == 503
    with pytest.raises(Unavailable, match="draining"):
        await desk.open(ids_request(), client="")
    assert desk.health()["queued"] == 1
    assert desk.health()["totals"]["errors"] == {"unavailable": 1}


async def test_leaving_a_queued_item_ends_it_and_is_idempotent():
    """Whoever left first."""
    desk = service()
    item = await desk.open(ids_request(), client="")
    for _ in range(2):
        desk.leave(item)
    assert item.life.state is Life.CANCELLED
    assert desk.health()["queued"] == 0


@pytest.mark.parametrize(
    ("wish", "space"),
    [
        ({}, namespace(CacheHints(prompt_cache_key="k"), "somebody")),
        ({"namespace_from": "default"}, namespace(CacheHints(prompt_cache_key="k"), "somebody")),
        ({"namespace_from": "cache_salt"}, namespace(CacheHints(cache_salt="s"), "somebody")),
        ({"namespace_from": "api_key"}, namespace(CacheHints(), "somebody")),
    ],
)
async def test_the_setting_chooses_what_names_the_namespace(wish, space):
    """`--namespace-from`; a prompt_cache_key that does not count still hints at the session."""
    hints = CacheHints(prompt_cache_key="k", cache_salt="s", session="k")
    item = await service(**wish).open(ids_request(hints=hints), client="somebody")
    assert (item.turn.namespace, item.turn.session_hint) == (space, "k")


@pytest.mark.parametrize("wish", [None, True, False, 0, 640, 10**30])
async def test_a_wish_to_pin_reaches_the_turn(wish):
    """As it is; whether it can be had is known only when the prompt is processed."""
    item = await service().open(ids_request(pin_prefix=wish), client="")
    assert item.turn.pin_prefix is wish


def test_health_has_every_figure_of_saved_states_from_the_start():
    """A dashboard need not guess which will come."""
    capsules = service(capsule_budget_mb=3).health()["capsules"]
    sizes = ["count", "bytes", "budget_bytes"]
    tiers = [f"{tier}_{size}" for tier in ("host", "disk") for size in sizes]
    held = [*sizes, "pinned", "device_count", *tiers]
    assert list(capsules) == [*held, *COUNTS]
    assert capsules.pop("budget_bytes") == 3 << 20
    assert set(capsules.values()) == {0}


async def test_health_says_what_saved_states_hold():
    """What was stored and is not gone is there, within the budget."""
    async with asking(capsule_budget_mb=1) as (desk, ask):
        item = await ask("be brief", "hello", pin_prefix=True)
        capsules, saved = desk.health()["capsules"], item.record.saved_capsules
    # The state of the answer's end is saved behind it, and is in no record.
    assert capsules["stored"] - saved in (0, 1)
    assert saved > 0
    gone = capsules["evicted"] + capsules["thinned"] + capsules["damaged"]
    assert capsules["count"] == capsules["stored"] - gone
    assert capsules["pinned"] == 1
    assert 0 < capsules["bytes"] <= capsules["budget_bytes"] == 1 << 20


async def test_without_a_budget_nothing_is_saved_and_a_pin_is_refused_with_a_reason():
    """The request is served all the same."""
    async with asking(capsule_budget_mb=0) as (desk, ask):
        item = await ask("be brief", "hello", pin_prefix=True)
        capsules, saved = desk.health()["capsules"], item.record.saved_capsules
    assert saved == capsules["stored"] == capsules["bytes"] == 0
    assert "--capsule-budget-mb" in item.record.pin["refused"]


async def test_a_broken_prefix_is_in_the_record_and_in_the_totals():
    """Which message and which byte; /health counts it by its kind."""
    async with asking() as (desk, ask):
        hints = CacheHints(session="one")
        first = await ask("be brief", "tell me of herons", hints=hints)
        second = await ask("be brief", "tell me of hens", hints=hints)
        totals = desk.health()["totals"]
    assert first.record.miss is None
    assert second.record.miss == {"message": 1, "byte": 13, "kind": "message"}
    assert totals["prefix_misses"] == {"message": 1}


async def test_tokens_are_those_of_the_prompt_that_would_be_served():
    """Counting opens nothing."""
    desk = service()
    asked = AgentRequest(model="m", messages=({"role": "user", "content": "hi"},))
    ids = await desk.tokens(asked)
    assert desk.health()["queued"] == 0
    assert (await desk.open(asked, client="")).prompt.ids == ids
    assert "hi" in await desk.text(ids)
    with pytest.raises(BadRequest):
        await desk.text([10**6])


async def test_a_shape_becomes_the_turns_constraint():
    """Compiled before the request is queued; one that cannot be is refused before it is an item."""
    desk = service()
    free, shaped = [
        await desk.open(ids_request(shape=shape), client="")
        for shape in (None, JsonShape({"enum": ["a"]}, "response_format"))
    ]
    assert free.turn.constraint is None
    assert isinstance(shaped.turn.constraint, Guide)
    with pytest.raises(BadRequest):
        await desk.open(ids_request(shape=JsonShape(False, "response_format")), client="")
    assert desk.health()["queued"] == 2


async def test_shapes_are_compiled_off_the_loop():
    """A large schema takes a while, in which streams of others go on."""
    threads = []

    class Watched(Constraints):
        def of(self, request, prompt):
            threads.append(threading.get_ident())
            return super().of(request, prompt)

    desk = service()
    desk._constraints = Watched(VOICE.tokenizer, VOICE.tokenizer.vocab_size, VOICE.stop_ids)
    await desk.open(ids_request(shape=JsonShape({"enum": ["a"]}, "response_format")), client="")
    assert threads
    assert threading.get_ident() not in threads


async def test_a_client_that_leaves_while_its_prompt_is_rendered_ends_there_with_a_record():
    """Whether it has a helper thread yet or waits for one: CANCELLED, and never queued (L3)."""
    engine = FakeEngine(vocab_size=VOICE.tokenizer.vocab_size)
    worker, desk = assemble(Settings(), attrs.evolve(VOICE, renderer=RENDERER), Performer(engine))
    desk.state.fire(ServerEvent.LOADED)
    RENDERER.hold()
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(RENDER_THREADS + 1):
                nursery.start_soon(partial(desk.open, ids_request(), client=""))
            await trio.testing.wait_all_tasks_blocked()
            assert desk.health()["rendering"] == RENDER_THREADS + 1
            nursery.cancel_scope.cancel()
            RENDERER.let_go()
    finally:
        RENDERER.let_go()
    assert worker.depth() == desk.health()["rendering"] == 0
    assert desk.health()["totals"]["requests"] == {"CANCELLED": RENDER_THREADS + 1}
    assert desk.health()["totals"]["errors"] == {"client_left": RENDER_THREADS + 1}
