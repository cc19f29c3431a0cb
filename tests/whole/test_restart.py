"""Conversations that go on after a restart, and between any two of their turns.

The server has room for two capsules in the engine's memory, then the host's, then a directory. The
oracle is the path run of tests/whole/talk.py. tests/test_tending.py has the laws one by one.
"""

import json

import pytest

from flashrt.bench.soak.talks import TOOL
from tests.whole.restarting import Restarting
from tests.whole.talk import NARROW, PathRun, Talk, demo_engine, system, tail, user, words
from tests.whole.test_talks import CUT, PENDING, written_again

SLOW = pytest.mark.slow
"""Together about two minutes: each turn loads an engine."""

DTYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


@pytest.fixture(scope="module")
def path_runs():
    return {}


@pytest.fixture
def oracle(path_runs, dtype):
    if dtype not in path_runs:
        path_runs[dtype] = PathRun(demo_engine(dtype, 4096))
    return path_runs[dtype]


@pytest.fixture
def server(tmp_path, dtype):
    return Restarting(tmp_path / "capsules", dtype)


def greets(server, text="s", **wish):
    return Talk(server, [system(words(40, text))], wish)


@pytest.mark.parametrize("dtype", ["float32", pytest.param(NARROW, marks=SLOW)])
async def test_the_next_turn_restores_after_a_restart(server, oracle):
    """In its session, from its file, with no token read twice; and an undo goes back behind one."""
    talk = greets(server)
    first = await talk.ask(user("question 0"))
    second = await talk.ask(user("question 1"))
    name = second.reuse["session"]
    assert (first.action, second.action) == ("rebuild", "restore")
    assert name == first.reuse["session"]
    assert second.new == tail(second, first) + PENDING
    assert second.reuse["restore_ms"] > 0
    assert server.capsules[-1]["found"] > 0
    undone = await server.post(f"/v1/sessions/{name}/undo", {"turns": 1})
    assert undone["tokens"] == len(first.all_ids) - PENDING
    oracle.meets(first, second)


@SLOW
async def test_files_of_another_cache_are_neither_used_nor_lost(tmp_path):
    """A server with keys and values of 8 bits reads the conversation again, and so does the first
    one then what came since; each goes on from its own files. Ten seconds."""
    wide, narrow = (Restarting(tmp_path / "capsules", dtype) for dtype in ("float32", NARROW))
    talk = greets(wide)
    answers = [await talk.ask(user("question 0"))]
    for number, talk.server in enumerate((narrow, narrow, wide), 1):
        answers.append(await talk.ask(user(f"question {number}")))
    assert [answer.action for answer in answers] == ["rebuild", "rebuild", "restore", "restore"]
    assert answers[3].new > answers[2].new
    for dtype, mine in (("float32", (0, 3)), (NARROW, (1, 2))):
        PathRun(demo_engine(dtype, 4096)).meets(*(answers[i] for i in mine))


@SLOW
@DTYPES
@pytest.mark.parametrize("turns", [12])
async def test_later_turns_prefill_their_tails(server, oracle, turns):
    """Each by another process, from what the one before has left."""
    talk = greets(server)
    for turn in range(turns):
        await talk.ask(user(f"question {turn}"))
    for before, answer in zip(talk.answers, talk.answers[1:], strict=False):
        assert answer.action == "restore"
        assert answer.new == tail(answer, before) + PENDING
    assert len({answer.reuse["session"] for answer in talk.answers}) == 1
    oracle.meets(*talk.answers)


@SLOW
@DTYPES
async def test_a_side_request_costs_nothing(server, oracle):
    """A title is asked for between two turns."""
    talk = greets(server)
    first = await talk.ask(user(words(60, "q")))
    title = await Talk(server).ask(user("A title for this, please: " + words(12, "t")))
    back = await talk.ask(user("go on"))
    assert back.new == tail(back, first) + PENDING
    oracle.meets(first, title, back)


@SLOW
@DTYPES
async def test_a_fork_into_four_and_the_parent_go_on(server, oracle):
    """As branches that nobody announced, and by a call."""
    parent = greets(server)
    first = await parent.ask(user(words(30, "q")))
    children = [parent.branch(3) for _ in range(4)]
    for number, child in enumerate(children):
        await child.ask(user(f"part {number}"))
    forked = await server.post(f"/v1/sessions/{first.reuse['session']}/fork", {"n": 4})
    called = [parent.branch(3) for _ in forked["data"]]
    for child, session in zip(called, forked["data"], strict=True):
        child.wish["flashrt_session"] = session["id"]
        await child.ask(user(f"piece of {session['id'][:8]}"))
        assert child.answers[0].reuse["session"] == session["id"]
    back = await parent.ask(user("now together"))
    answers = [child.answers[0] for child in (*children, *called)]
    for answer in (*answers, back):
        assert answer.new == tail(answer, first) + PENDING
    oracle.meets(*answers, back)


@SLOW
@DTYPES
async def test_an_undone_turn_has_never_been(server, oracle):
    """The same message again gets the same ids."""
    talk = greets(server)
    await talk.ask(user("question 0"))
    second = await talk.ask(user("question 1"))
    await server.post(f"/v1/sessions/{second.reuse['session']}/undo", {"turns": 1})
    del talk.messages[-2:]
    again = await talk.ask(user("question 1"))
    assert again.output_ids == second.output_ids
    assert again.prompt_ids == second.prompt_ids
    oracle.meets(second, again)


@SLOW
@DTYPES
async def test_a_regenerated_answer_and_an_edit_start_before_it(server, oracle):
    """The same body twice; then the first message is another one."""
    talk = greets(server)
    await talk.ask(user(words(60, "q")))
    first = await talk.ask(user("and then"))
    talk.messages.pop()
    again = await talk.send()
    more = await talk.ask(user("go on"))
    edited = await talk.branch(1).ask(user("something else"))
    assert again.new < 10
    assert again.output_ids == first.output_ids
    assert more.new == tail(more, again) + PENDING
    assert edited.new <= tail(edited, first) + CUT
    oracle.meets(first, again, more, edited)


@SLOW
@DTYPES
async def test_fresh_chats_share_their_opening(server, oracle):
    """Equal system and tools, once with a schema in another key order."""
    other = json.loads(json.dumps(TOOL, sort_keys=True))
    chats = [greets(server, tools=[tool]) for tool in (TOOL, TOOL, other)]
    first, second, third = [await chat.ask(user(f"chat {i}")) for i, chat in enumerate(chats)]
    for answer in (second, third):
        assert answer.action == "restore"
        assert answer.new <= tail(answer, first) + CUT
    oracle.meets(first, second, third)


@SLOW
@DTYPES
async def test_what_was_sampled_is_read_though_it_is_spelt_otherwise(server, oracle):
    """Thinking that the client drops, and a call that it writes in its own way."""
    talk = greets(server, tools=[TOOL])
    asked = await talk.ask(
        user("look"), tool_choice="required", max_tokens=400, enable_thinking=False
    )
    call_id = asked.message["tool_calls"][0]["id"]
    talk.retell(written_again)
    found = await talk.ask({"role": "tool", "tool_call_id": call_id, "content": "found"})
    assert found.new == tail(found, asked) + PENDING
    talk.retell(lambda message: {"role": "assistant", "content": message["content"] or ""})
    last = await talk.ask(user("thanks"))
    assert last.new <= tail(last, found) + PENDING
    oracle.meets(found, last)


@SLOW
@DTYPES
async def test_all_tiers_are_passed_through(server, oracle):
    """Many conversations in one life, more than the memories hold; then all go on in another."""
    talks = [greets(server, f"s{i}") for i in range(8)]
    async with server.up() as one:
        for talk in talks:
            talk.server = one
            await talk.ask(user("question 0"))
    held = server.capsules[-1]
    assert held["offloaded"]
    assert held["released"]
    assert held["bytes"] <= held["budget_bytes"]
    assert held["host_bytes"] <= held["host_budget_bytes"]
    async with server.up() as two:
        for talk in talks:
            talk.server = two
            before, answer = talk.answers[-1], await talk.ask(user("question 1"))
            assert answer.action == "restore"
            assert answer.new == tail(answer, before) + PENDING
    oracle.meets(*(talk.answers[1] for talk in talks))
