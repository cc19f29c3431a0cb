"""Conversations over HTTP on the real engine: a turn prefills its new tail, and no more than a cut.

The tail is what the prompt has behind the earlier prompt and answer. Each test names its oracle:
path is the run that makes the same calls, cold a prefill from 0 over the same ids.
"""

import json
import random

import pytest
import trio

from flashrt.bench.soak.talks import TOOL
from tests.gate import GatedPerformer
from tests.http.vocabulary import post
from tests.whole.server import ENDLESS, chat_body, running_server
from tests.whole.talk import PathRun, Talk, demo_engine, system, tail, user, words
from tests.whole.watch import until, until_states

CUT = 128
"""--chunk-tokens of these servers: a long prompt here has many cuts."""

PENDING = 1
"""The newest id of an answer is in the journal, but not processed."""

BFLOAT16 = pytest.param("bfloat16", marks=pytest.mark.slow)
DTYPES = pytest.mark.parametrize("dtype", ["float32", BFLOAT16])


def serving(dtype, *, engine=None, performer=None, **wish):
    """A server of the demo with room for many capsules."""
    wish = {"chunk_tokens": CUT, **wish}
    return running_server(engine or demo_engine(dtype, 4096), performer=performer, **wish)


@pytest.fixture(scope="module")
def path_runs():
    return {dtype: PathRun(demo_engine(dtype, 4096)) for dtype in ("float32", "bfloat16")}


@pytest.fixture
def oracle(path_runs, dtype):
    return path_runs[dtype]


def greets(server, text="s", **wish):
    """A conversation with a system turn."""
    return Talk(server, [system(words(40, text))], wish)


@DTYPES
@pytest.mark.parametrize("turns", [5, pytest.param(30, marks=pytest.mark.slow)])
async def test_later_turns_prefill_their_tails(dtype, turns, oracle):
    """Append-only, each ended by its length. Oracle: path; cold in float32."""
    async with serving(dtype) as server:
        talk = greets(server)
        for turn in range(turns):
            await talk.ask(user(f"question {turn}"))
    first, *later = talk.answers
    assert first.action == "rebuild"
    for before, answer in zip(talk.answers, later, strict=False):
        assert answer.action in ("append", "message_append")
        assert answer.new == tail(answer, before) + PENDING
        assert answer.reuse["miss"] is None
    oracle.meets(first, later[0], later[turns // 2], later[-1])
    if dtype == "float32":
        oracle.meets_cold(first, later[0], later[-1])


@DTYPES
async def test_a_side_request_costs_nothing(dtype, oracle):
    """A title is asked for between two turns. Oracle: path."""
    async with serving(dtype) as server:
        talk = greets(server)
        first = await talk.ask(user(words(60, "q")))
        title = await Talk(server).ask(user("A title for this, please: " + words(12, "t")))
        back = await talk.ask(user("go on"))
    assert title.action == "rebuild"
    assert back.action == "restore"
    assert back.new == tail(back, first) + PENDING
    oracle.meets(first, title, back)


@DTYPES
async def test_a_parent_goes_on_after_its_children(dtype, oracle):
    """Six branches of one conversation, then its own next turn. Oracle: path."""
    async with serving(dtype) as server:
        parent = greets(server)
        first = await parent.ask(user(words(30, "q")))
        children = [parent.branch(3) for _ in range(6)]
        for number, child in enumerate(children):
            await child.ask(user(f"part {number}"))
        back = await parent.ask(user("now together"))
    answers = [child.answers[0] for child in children]
    for answer in [*answers, back]:
        assert answer.new == tail(answer, first) + PENDING
    oracle.meets(answers[0], answers[-1], back)


@DTYPES
async def test_fresh_chats_share_their_opening(dtype, oracle):
    """Equal system and tools, once with a schema in another key order. Oracle: path and cold."""
    other = json.loads(json.dumps(TOOL, sort_keys=True))
    async with serving(dtype) as server:
        chats = [greets(server, tools=[tool]) for tool in (TOOL, TOOL, other)]
        answers = [await chat.ask(user(f"chat {i}")) for i, chat in enumerate(chats)]
    first, second, third = answers
    for answer in (second, third):
        assert answer.action == "restore"
        assert answer.new <= tail(answer, first) + CUT
        assert answer.cached == answer.reuse["lineage"][-2][0] > 200
    oracle.meets(*answers)
    if dtype == "float32":
        oracle.meets_cold(*answers)


@DTYPES
async def test_a_regenerated_answer_starts_before_its_generation_prompt(dtype, oracle):
    """The same body twice, then the next turn. Oracle: path; both answers are the same."""
    async with serving(dtype) as server:
        talk = greets(server)
        await talk.ask(user(words(60, "q")))
        first = await talk.ask(user("and then"))
        talk.messages.pop()
        again = await talk.send()
        more = await talk.ask(user("go on"))
    assert again.prompt_ids == first.prompt_ids
    assert again.action == "truncate"
    assert again.new < 10
    assert again.output_ids == first.output_ids
    assert more.new == tail(more, again) + PENDING
    oracle.meets(first, again, more)


@DTYPES
async def test_a_cancelled_prefill_is_not_read_again(dtype, oracle):
    """Cancelled at 60 % of a long prompt and sent again. Oracle: path, which is cold."""
    engine = demo_engine(dtype, 4096)
    gate = GatedPerformer(engine)
    text = words(500, "long")
    async with serving(dtype, engine=engine, performer=gate) as server:
        leaver = await server.stream()
        await leaver.send_all(post(chat_body(text, stream=True)))
        gate.allow(1)
        await until(lambda: len(gate.steps) == 1)
        total = 1500  # about what the prompt has
        while engine.position < 0.6 * total:
            done = len(gate.steps)
            gate.allow(1)
            await until(lambda done=done: len(gate.steps) > done)
        await leaver.aclose()
        gate.allow(100_000)
        await until_states(server, CANCELLED=1)
        again = await Talk(server).ask(user(text))
    assert again.action == "restore"
    assert again.cached >= 0.6 * total
    oracle.meets(again)
    assert all(how == "prefill" and not beyond for _, how, beyond in again.reuse["lineage"])


@DTYPES
async def test_thinking_may_be_switched_between_turns(dtype, oracle):
    """On, off, on; the client sends no thinking back. Oracle: path."""
    async with serving(dtype) as server:
        talk = greets(server)
        for turn, on in enumerate([True, False, False, True]):
            await talk.ask(user(f"question {turn}"), enable_thinking=on)
            talk.retell(lambda message: {"role": "assistant", "content": message["content"] or ""})
    for before, answer in zip(talk.answers, talk.answers[1:], strict=False):
        assert answer.action in ("append", "message_append")
        assert answer.new <= tail(answer, before) + PENDING
    oracle.meets(*talk.answers)


def written_again(message):
    """As clients do that parse arguments: other key order and blanks, null for no text."""
    calls = [
        {
            **call,
            "index": i,
            "function": {
                "name": call["function"]["name"],
                "arguments": json.dumps(
                    dict(reversed(json.loads(call["function"]["arguments"]).items())), indent=1
                ),
            },
        }
        for i, call in enumerate(message["tool_calls"])
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@DTYPES
async def test_calls_may_be_written_in_another_way(dtype, oracle):
    """A forced call that the client re-serialises, and its result. Oracle: path."""
    async with serving(dtype) as server:
        talk = greets(server, tools=[TOOL])
        asked = await talk.ask(
            user("look"), tool_choice="required", max_tokens=400, enable_thinking=False
        )
        assert asked.body["choices"][0]["finish_reason"] == "tool_calls"
        call_id = asked.message["tool_calls"][0]["id"]
        talk.retell(written_again)
        answer = await talk.ask({"role": "tool", "tool_call_id": call_id, "content": "found"})
    assert answer.action in ("append", "message_append")
    assert answer.new == tail(answer, asked) + PENDING
    oracle.meets(answer)


@DTYPES
async def test_a_stop_string_leaves_what_was_visible(dtype, oracle):
    """Cut in the middle of a token: the next turn reads what the client saw. Oracle: path."""
    async with serving(dtype) as server:
        probe = await greets(server).ask(user("say"), max_tokens=12, enable_thinking=False)
        text = probe.message["content"]
        stop = text[len(text) // 2 : len(text) // 2 + 3]
        talk = greets(server)
        first = await talk.ask(user("say"), max_tokens=12, enable_thinking=False, stop=stop)
        assert first.message["content"] == text[: text.index(stop)]
        answer = await talk.ask(user("go on"))
    assert answer.action in ("append", "message_append")
    assert answer.new <= tail(answer, first) + 3
    oracle.meets(answer)


@DTYPES
async def test_a_window_that_is_full_stays_of_use(dtype, oracle):
    """Decode to the last position, then a shorter question about the same. Oracle: path."""
    async with serving(dtype, engine=demo_engine(dtype, 300)) as server:
        talk = greets(server)
        full = await talk.ask(user("tell me all"), max_tokens=1000, **ENDLESS)
        assert len(full.all_ids) == 300
        talk.messages[-2:] = [user("tell me less")]
        short = await talk.send()
    assert short.action == "restore"
    assert short.new <= tail(short, full) + CUT
    oracle.meets(short)


SOME_EDITS, EDITS = (19, 11, 4), (19, 16, 13, 11, 7, 4, 2)


@pytest.mark.parametrize(
    "edits", [SOME_EDITS, pytest.param(EDITS, marks=pytest.mark.slow)], ids=len
)
async def test_an_edit_finds_a_state_just_before_it(path_runs, edits):
    """20 turns; turn k is edited: k - 1 within the newest 8, half of k before. Oracle: path."""
    rng = random.Random(5)
    async with serving("float32") as server:
        talk = greets(server, max_tokens=2)
        for turn in range(20):
            await talk.ask(user(f"question {turn} {words(rng.randrange(9), 'x')}"))
        for turn in edits:
            edited = talk.branch(1 + 2 * turn)
            answer = await edited.ask(user("something else"))
            newest = 20 - turn < 8
            floor = len(talk.answers[turn - 1 if newest else turn // 2].prompt_ids)
            assert answer.cached >= floor - CUT * (not newest), turn
            assert answer.reuse["miss"] == {"message": 1 + 2 * turn, "byte": 0, "kind": "message"}
            path_runs["float32"].meets(answer)


async def test_every_body_is_unaffected_by_who_asks_beside_it(path_runs):
    """Three conversations at once, waiting in one line. Oracle: path."""
    async with serving("float32") as server:
        talks = [greets(server, f"s{i}") for i in range(3)]

        async def run(talk):
            for turn in range(3):
                await talk.ask(user(f"question {turn}"))

        async with trio.open_nursery() as nursery:
            for talk in talks:
                nursery.start_soon(run, talk)
    for talk in talks:
        later = talk.answers[1:]
        for before, answer in zip(talk.answers, later, strict=False):
            assert answer.new == tail(answer, before) + PENDING
        path_runs["float32"].meets(later[-1])
