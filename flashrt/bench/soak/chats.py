"""Actions of clients that behave: they converse, go back, try again, complete texts, and probe."""

import random
from typing import Any

from flashrt.bench.soak.answers import Answer
from flashrt.bench.soak.client import CHAT, COMPLETIONS, Client
from flashrt.bench.soak.talks import Talk, new_talk, question, structured_wish, wish, words
from flashrt.bench.soak.wire import Fault

TALKS_MAX = 5
OK = frozenset({200})


async def append(client: Client, rng: random.Random) -> None:
    """The next turn of a conversation, or the first of a new one."""
    talk = chosen(client, rng)
    await turn(client, talk, question(rng), wish(rng))


async def branch(client: Client, rng: random.Random) -> None:
    """Another conversation goes on from an earlier answer."""
    talk = chosen(client, rng)
    cut = talk.cut(rng.choice([1, *talk.turns()]))
    keep(client, cut)
    await turn(client, cut, question(rng), wish(rng))


async def edit(client: Client, rng: random.Random) -> None:
    """An earlier question is written anew; what came behind it is gone."""
    talk = chosen(client, rng)
    if talk.turns():
        del talk.messages[rng.choice(talk.turns()) :]
    await turn(client, talk, question(rng), wish(rng))


async def regenerate(client: Client, rng: random.Random) -> None:
    """The newest question is asked once more."""
    talk = chosen(client, rng)
    newest = talk.turns()[-1] if talk.turns() else len(talk.messages)
    again = talk.messages[newest] if talk.turns() else question(rng)
    del talk.messages[newest:]
    await turn(client, talk, again, wish(rng))


async def side_request(client: Client, rng: random.Random) -> None:
    """A small request of its own between two turns, such as for a title."""
    title = Talk([{"role": "user", "content": "A title: " + words(rng, 3, 9)}], {})
    await turn(client, title, question(rng), wish(rng))


async def structured(client: Client, rng: random.Random) -> None:
    """A call or an object that is enforced; a call gets its result, and the talk goes on."""
    talk = chosen(client, rng)
    answer = await turn(client, talk, question(rng), structured_wish(rng))
    calls = answer.message.get("tool_calls") if answer is not None else None
    if answer is not None and calls and answer.finish == "tool_calls":
        results: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": call["id"], "content": "found"} for call in calls
        ]
        talk.messages += results[:-1]
        await turn(client, talk, results[-1], wish(rng))


async def completion(client: Client, rng: random.Random) -> None:
    """A text goes on, or the ids of an earlier answer do."""
    asked = {**wish(rng), "prompt": words(rng, 3, 60)}
    asked.pop("top_logprobs", None)
    if asked.pop("logprobs", False):
        asked["logprobs"] = rng.randint(0, 5)
    answer = await client.ask({"model": "any", **asked}, COMPLETIONS)
    if answer is not None and rng.random() < 0.5:
        ids = [*answer.prompt_ids, *answer.output_ids]
        await client.ask({"model": "any", **wish_without_logprobs(rng), "prompt": ids}, COMPLETIONS)


def wish_without_logprobs(rng: random.Random) -> dict[str, Any]:
    """For text completions, whose field of that name is a number."""
    return {k: v for k, v in wish(rng).items() if k not in ("logprobs", "top_logprobs")}


async def tokens(client: Client, rng: random.Random) -> None:
    """A text as ids, and the ids as text again."""
    text = words(rng, 1, 200)
    ids = (await client.expect(OK, "POST", "/tokenize", {"prompt": text})).json()["tokens"]
    back = (await client.expect(OK, "POST", "/detokenize", {"tokens": ids})).json()
    if text not in back.values():
        raise Fault(f"{text!r} came back as {back}")


async def probe(client: Client, rng: random.Random) -> None:
    """One of the pages that say what the server is and does."""
    path = rng.choice(pages(client))
    if not (await client.expect(OK, "GET", path)).body:
        raise Fault(f"GET {path} is empty")


def pages(client: Client) -> list[str]:
    """What can be asked by GET without a name that one would have to know."""
    return sorted(
        path for method, path in client.target.documented if method == "GET" and "{" not in path
    )


def chosen(client: Client, rng: random.Random) -> Talk:
    """One of the client's conversations that is not yet too long, or a new one."""
    client.talks = [talk for talk in client.talks if not talk.full]
    if not client.talks or rng.random() < 0.15:
        return keep(client, new_talk(rng))
    return rng.choice(client.talks)


def keep(client: Client, talk: Talk) -> Talk:
    """Remember a conversation; the oldest is forgotten."""
    client.talks = [*client.talks[-TALKS_MAX + 1 :], talk]
    return talk


async def turn(
    client: Client, talk: Talk, message: dict[str, Any], asked: dict[str, Any]
) -> Answer | None:
    """Ask the next question; only an answer that is whole becomes part of the conversation."""
    body = Talk([*talk.messages, message], talk.fields).body(asked)
    answer = await client.ask(body, CHAT)
    if answer is not None:
        talk.messages += [message, dict(answer.message)]
    return answer
