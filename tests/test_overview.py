"""What a server does at this moment, as `activity` of /health has it."""

import json

import pytest
import trio
import trio.testing

from flashrt.overview import SHOWN_MAX, Overview
from tests.http.busy import KEY, NAMESPACE, TEXTS, busy_server
from tests.test_worker import MANY, BuggyTurns, Desk, outcome, running
from tests.whole.server import chat_body, fake_engine, running_server
from tests.whole.watch import health


async def test_requests_that_are_here_stand_in_the_order_of_their_turn():
    """The running one with its prefill, then those that wait, oldest first."""
    async with busy_server() as busy:
        running, *waiting = (await busy.health())["activity"]["requests"]
    assert (running["state"], running["prefix_action"]) == ("PREFILL", "rebuild")
    assert running["prefill"]["total_tokens"] == running["prompt_tokens"]
    assert 128 <= running["prefill"]["processed_tokens"] < running["prompt_tokens"]
    assert [request["state"] for request in waiting] == ["QUEUED", "QUEUED"]
    ages = [request["age_ms"] for request in (running, *waiting)]
    assert ages == sorted(ages, reverse=True)


async def test_no_word_of_anybody_is_shown():
    """No prompt, no answer, no namespace, no key: neither now nor when all is over."""
    async with busy_server() as busy:
        shown = json.dumps(await busy.health())
        await busy.go_on()
        shown += json.dumps(await busy.health())
    words = {word for text in TEXTS for word in text.split()} - {"is"}
    secrets = [*words, NAMESPACE, KEY]
    assert [secret for secret in secrets if f'"{secret}' in shown or f" {secret}" in shown] == []


async def test_the_hot_session_is_the_last_one_with_all_but_its_newest_token():
    """Nothing is hot while a prompt is read: what would be attached to is not whole."""
    async with busy_server() as busy:
        assert (await busy.health())["activity"]["hot"] is None
        await busy.go_on()
        activity = (await busy.health())["activity"]
    last = activity["recent"][0]
    assert activity["hot"]["tokens"] == last["prompt_tokens"] + last["completion_tokens"] - 1


async def test_a_namespace_has_one_sign_in_one_run_and_another_in_the_next():
    """So that nobody can try out which name it is."""
    signs = []
    for _ in range(2):
        async with running_server(fake_engine()) as server:
            for _ in range(2):
                await server.chat(prompt_cache_key=NAMESPACE)
                signs.append((await health(server))["activity"]["hot"]["namespace"])
    assert signs[0] == signs[1] != signs[2] == signs[3]


async def test_kinds_of_saved_states_add_up():
    """Every state that is held is of one kind."""
    async with busy_server() as busy:
        now = await busy.health()
    kinds = now["activity"]["capsule_kinds"]
    assert sum(kinds.values()) == now["capsules"]["count"] > 0
    assert kinds["cut"] == 1


async def test_finished_requests_are_the_newest_ones_newest_first():
    """Each with what its prompt cost and what broke its prefix."""
    async with busy_server() as busy:
        second, first = (await busy.health())["activity"]["recent"]
        assert second["miss"] == {"kind": "message", "message": 0, "byte": 18}
        assert first["miss"] is None
        assert second["ended_s"] <= first["ended_s"]
        await busy.go_on()
        for number in range(SHOWN_MAX):
            answer = await busy.server.chat(f"one more {number}")
        recent = (await busy.health())["activity"]["recent"]
    assert len(recent) == SHOWN_MAX
    assert recent[0]["request_id"] == answer["flashrt"]["request_id"]
    assert recent[0]["first_delta_ms"] == answer["flashrt"]["first_delta_ms"]


async def test_a_refused_request_says_why_in_one_word():
    """The kind of error, without its message."""
    async with running_server(fake_engine(max_seq=64)) as server:
        refused = await server.http.post("/v1/chat/completions", json=chat_body("long " * 100))
        (shown,) = (await health(server))["activity"]["recent"]
    assert refused.status_code == 413
    assert (shown["terminal_state"], shown["error_kind"]) == ("REJECTED", "prompt_too_long")


async def test_a_dead_engine_has_nothing_hot():
    """What it held went with it."""
    desk = Desk()
    overview = Overview(desk.worker, desk.ledger, trio.CapacityLimiter(1))
    desk.gate.allow(MANY)
    with pytest.RaisesGroup(ZeroDivisionError):
        async with running(desk):
            await outcome(desk.submit())
            assert overview.report()["hot"]["tokens"] > 0
            desk.worker._turns = BuggyTurns(desk.turns.policy, desk.turns.cut_rule)
            desk.submit()
            await trio.sleep_forever()
    assert overview.report()["hot"] is None


async def test_prompts_that_are_rendered_are_counted():
    """Those under way and those that wait for a thread."""
    desk, limiter = Desk(), trio.CapacityLimiter(1)
    overview = Overview(desk.worker, desk.ledger, limiter)
    async with trio.open_nursery() as nursery, limiter:
        nursery.start_soon(limiter.acquire)
        await trio.testing.wait_all_tasks_blocked()
        assert overview.report()["rendering"] == 2
