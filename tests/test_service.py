"""From a request to an admitted item."""

import threading

import pytest

from flashrt.chat.constrained import Constraints
from flashrt.chat.guide import Guide
from flashrt.chat.request import AgentRequest, CacheHints, SamplingWish
from flashrt.chat.shape import JsonShape
from flashrt.engine.fake import FakeEngine
from flashrt.errors import BadRequest, PromptTooLong, QueueFull, Unavailable
from flashrt.fsm.lifecycle import Life
from flashrt.fsm.server import ServerEvent
from flashrt.policy.steps import Performer
from flashrt.serve import assemble
from flashrt.service import namespace
from flashrt.settings import Settings
from tests.whole.server import VOICE


def service(*, burst_max=1, **wish):
    """A ready service on a fake engine that nobody runs."""
    engine = FakeEngine(vocab_size=VOICE.tokenizer.vocab_size, max_seq=128, burst_max=burst_max)
    _, desk = assemble(Settings(**wish), VOICE, Performer(engine))
    desk.state.fire(ServerEvent.LOADED)
    return desk


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


async def test_leaving_a_queued_item_ends_it_and_is_idempotent():
    """Whoever left first."""
    desk = service()
    item = await desk.open(ids_request(), client="")
    for _ in range(2):
        desk.leave(item)
    assert item.life.state is Life.CANCELLED
    assert desk.health()["queued"] == 0


def test_no_value_of_one_source_names_anothers_namespace():
    """G10: prompt_cache_key > cache_salt > the API key's salt, each in its own space."""
    spaces = [
        namespace(ids_request(hints=CacheHints(prompt_cache_key="x", cache_salt="y")), "k"),
        namespace(ids_request(hints=CacheHints(cache_salt="x")), "k"),
        namespace(ids_request(), "x"),
        namespace(ids_request(), "prompt_cache_key:x"),
        namespace(ids_request(hints=CacheHints(cache_salt="prompt_cache_key:x")), "k"),
    ]
    assert len(set(spaces)) == len(spaces)
    assert namespace(ids_request(), "secret") == namespace(ids_request(), "secret")
    assert "secret" not in namespace(ids_request(), "secret")


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
