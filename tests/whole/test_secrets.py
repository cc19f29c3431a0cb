"""Nothing of one conversation gets into another, and nothing at all across namespaces (G10)."""

import random
import re

import pytest
import trio

from tests.scripted import ScriptedEngine
from tests.whole.server import VOICE, running_server
from tests.whole.talk import Talk, demo_engine, system, user, words

SECRET = re.compile(r"secret (\w+)")
TURNS, AT_ONCE = 3, 8


class TellTale(ScriptedEngine):
    """Says every secret word that its state has really processed."""

    def says(self, prompt: str) -> str:
        told = sorted(set(SECRET.findall(prompt)))
        return f"I know {' '.join(told)}.<|im_end|>"


def secret_of(number: int) -> str:
    """A word of its own for each conversation, of letters that no other text has in a row."""
    digits = "bcdfghjklm"
    return "x" + "".join(digits[int(digit)] for digit in f"{number:03d}")


@pytest.mark.parametrize("budget_mb", [1, 64], ids=["little room", "room"])
@pytest.mark.parametrize("conversations", [50, pytest.param(200, marks=pytest.mark.slow)])
async def test_no_secret_crosses_interleaved_conversations(conversations, budget_mb):
    """They have one opening, their turns come in any order, some are in another namespace."""
    rng = random.Random(3)
    async with running_server(
        TellTale(VOICE.tokenizer), capsule_budget_mb=budget_mb, chunk_tokens=64, max_queue_depth=64
    ) as server:
        talks = [
            Talk(
                server,
                [system(words(20, "same"))],
                {"max_tokens": 40, "enable_thinking": False}
                | ({"cache_salt": "other"} if number % 5 == 0 else {}),
            )
            for number in range(conversations)
        ]
        order = [number for number in range(conversations) for _ in range(TURNS)]
        rng.shuffle(order)
        line, limit = iter(order), trio.CapacityLimiter(AT_ONCE)
        locks = [trio.Lock() for _ in talks]

        async def one(number: int) -> None:
            async with locks[number], limit:
                talk = talks[number]
                turn = len(talk.answers)
                filler = words(250, f"f{number}") if budget_mb == 1 and turn == 0 else ""
                said = f"my secret {secret_of(number)} {filler}" if turn == 0 else f"what? {turn}"
                answer = await talk.ask(user(said))
                assert answer.message["content"] == f"I know {secret_of(number)}."

        async with trio.open_nursery() as nursery:
            for number in line:
                nursery.start_soon(one, number)
        health = (await server.http.get("/health")).json()
    held = health["capsules"]
    assert held["bytes"] <= budget_mb << 20
    assert health["totals"]["requests"] == {"DONE": conversations * TURNS}
    if budget_mb == 1:
        assert held["evicted"] > 0


@pytest.mark.parametrize(
    ("source", "shares"), [("default", False), ("cache_salt", True), ("api_key", True)]
)
async def test_a_conversation_id_as_cache_key_shares_as_the_server_is_told(source, shares):
    """Two sessions of an agent that puts its session id into prompt_cache_key (G10)."""
    opening = system(words(60, "agent"))
    async with running_server(
        demo_engine("float32", 2048), chunk_tokens=128, namespace_from=source
    ) as server:
        first = await Talk(server, [opening], {"prompt_cache_key": "one"}).ask(user("a task"))
        second = await Talk(server, [opening], {"prompt_cache_key": "two"}).ask(user("its own"))
    assert first.action == "rebuild"
    assert (second.action, second.cached > 0) == (
        ("restore", True) if shares else ("rebuild", False)
    )
