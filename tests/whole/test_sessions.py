"""Sessions over HTTP: fork, undo and delete against the run that never left, and by plain requests.

The oracle is the path run of DESIGN section 2, as in test_talks.py.
"""

import json
import re
import shutil

import pytest
import trio

from tests.gate import GatedPerformer
from tests.http.vocabulary import CHAT, post
from tests.source import ROOT
from tests.whole.server import chat_body, fake_engine, running_server
from tests.whole.talk import PathRun, Talk, demo_engine, system, user, words
from tests.whole.watch import MANY, health, one_waits, until, until_states


def serving(dtype="float32", **wish):
    """A server of the demo."""
    return running_server(demo_engine(dtype, 2048), **{"chunk_tokens": 128, **wish})


@pytest.fixture(scope="module")
def path_runs():
    return {dtype: PathRun(demo_engine(dtype, 2048)) for dtype in ("float32", "bfloat16")}


async def call(server, method, path, body=None, status=200, **headers):
    """What a session call is answered."""
    answer = await server.http.request(
        method, f"/v1/sessions{path}", json=body, headers={k: v for k, v in headers.items() if v}
    )
    assert answer.status_code == status, answer.text
    return answer.json()


async def named_talk(server, **wish):
    """A conversation of a session that was made for it, two turns long."""
    session = await call(server, "POST", "", {})
    wish = {"flashrt_session": session["id"], "max_tokens": 4, **wish}
    talk = Talk(server, [system(words(9, "s"))], wish)
    await talk.ask(user(words(9, "q")))
    await talk.ask(user("and then"))
    return session["id"], talk


async def running(server):
    """Whether the engine has taken something up."""
    return (await health(server))["running"] is not None


def child_of(talk, session_id):
    """The same conversation in another session."""
    child = talk.branch(len(talk.messages))
    child.wish["flashrt_session"] = session_id
    return child


@pytest.mark.parametrize(
    ("dtype", "turns", "budget"),
    [
        ("float32", 1, {}),
        pytest.param("float32", 3, {}, marks=pytest.mark.slow),
        pytest.param("bfloat16", 3, {}, marks=pytest.mark.slow),
        pytest.param("float32", 2, {"capsule_budget_mb": 0}, marks=pytest.mark.slow),
    ],
)
async def test_four_children_go_on_from_one_boundary(dtype, turns, budget, path_runs):
    """In turns, and then the parent's own next one. Oracle: path. Where nothing can be saved, all
    say so, and read it again; only the first finds it live."""
    async with serving(dtype, **budget) as server:
        parent_id, parent = await named_talk(server)
        before = await call(server, "GET", f"/{parent_id}")
        forked = await call(server, "POST", f"/{parent_id}/fork", {"n": 4})
        children = [child_of(parent, session["id"]) for session in forked["data"]]
        for turn in range(turns):
            for number, child in enumerate(children):
                await child.ask(user(f"{number} part {turn}"))
        after = await call(server, "GET", f"/{parent_id}")
        await parent.ask(user("now together"))
    firsts = [child.answers[0] for child in children]
    assert {session["parent"] for session in forked["data"]} == {parent_id}
    assert [a.reuse["session"] for a in firsts] == [session["id"] for session in forked["data"]]
    assert (after["tokens"], after["turns"]) == (before["tokens"], 2)
    if budget:
        assert [answer.cached for answer in firsts] == [before["tokens"], 0, 0, 0]
        assert after["next_turn"] == "rebuild"
    else:
        assert [answer.cached for answer in firsts] == [before["tokens"]] * 4
        assert [answer.action for answer in firsts[1:]] == ["restore"] * 3
        assert parent.answers[-1].cached == before["tokens"]
    newest = [child.answers[-1] for child in children]
    path_runs[dtype].meets(*firsts[::3], *newest[1:turns], parent.answers[-1])


@pytest.mark.parametrize(
    ("way", "turns", "dtype"),
    [
        ("a call", 1, "float32"),
        *(
            pytest.param(way, turns, dtype, marks=pytest.mark.slow)
            for way in ("a call", "plain requests")
            for turns in (1, 2)
            for dtype in ("float32", "bfloat16")
            if (way, turns, dtype) != ("a call", 1, "float32")
        ),
    ],
)
async def test_after_an_undo_a_new_message_is_the_run_that_never_had_the_turns(
    way, turns, dtype, path_runs
):
    """Ids and lineage, by a call and by sending fewer messages. Oracle: path, and that run."""
    async with serving(dtype) as server:
        session_id, talk = await named_talk(server)
        if way == "plain requests":
            talk = Talk(server, [system(words(9, "p"))], {"max_tokens": 4})
            await talk.ask(user(words(9, "q")))
            await talk.ask(user("and then"))
        kept = list(talk.messages)
        for turn in range(turns):
            await talk.ask(user(f"never said {turn} {words(9, 'n')}"))
        if way == "a call":
            undone = await call(server, "POST", f"/{session_id}/undo", {"turns": turns})
            assert (undone["hot"], undone["messages"]) == (True, len(kept))
        talk.messages = list(kept)
        new = await talk.ask(user("said instead"))
    async with serving(dtype) as server:
        twin = Talk(server, kept[:1], {"max_tokens": 4})
        for number in (1, 3):
            await twin.ask(kept[number])
        never = await twin.ask(user("said instead"))
    assert twin.messages == talk.messages
    assert new.all_ids == never.all_ids
    assert new.reuse["lineage"] == never.reuse["lineage"]
    if way == "a call":
        assert new.action in ("append", "message_append")
    else:
        assert new.action == {1: "truncate", 2: "fork"}[turns]
    path_runs[dtype].meets(new)


@pytest.mark.slow
async def test_an_undo_without_any_saved_state_is_only_slow(path_runs):
    """The answer says that the next turn reads from 0, and it does. Oracle: cold."""
    async with serving(capsule_budget_mb=0) as server:
        session_id, talk = await named_talk(server)
        undone = await call(server, "POST", f"/{session_id}/undo", {"messages": 3})
        talk.messages = talk.messages[:3]
        answer = await talk.ask(user("said instead"))
    assert (undone["next_turn"], undone["reusable_tokens"], undone["hot"]) == ("rebuild", 0, False)
    assert undone["tokens"] > 0
    assert (answer.action, answer.reuse["session"]) == ("rebuild", session_id)
    path_runs["float32"].meets(answer)
    path_runs["float32"].meets_cold(answer)


async def test_what_is_deleted_is_read_as_new(path_runs):
    """No state, pinned or not, and no replay of its thinking. Oracle: cold."""
    async with serving(chunk_tokens=64) as server:
        session_id, talk = await named_talk(server, enable_thinking=True, flashrt_pin_prefix=True)
        talk.messages = [
            {key: value for key, value in message.items() if key in ("role", "content")}
            for message in talk.messages
        ]
        known = await talk.branch(len(talk.messages)).ask(user("once more"), max_tokens=1)
        deleted = await call(server, "DELETE", f"/{session_id}")
        held = (await server.http.get("/health")).json()["capsules"]["count"]
        again = await talk.ask(user("once more"))
        await call(server, "GET", f"/{session_id}", status=404)
    assert known.reuse["replayed_tokens"] > 0
    assert (deleted["kept_capsules"], held) == (0, 0)
    assert deleted["capsules"] > 2
    assert (again.action, again.reuse["replayed_tokens"]) == ("rebuild", 0)
    assert again.reuse["session"] != session_id
    path_runs["float32"].meets(again)
    path_runs["float32"].meets_cold(again)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/fork", {}),
        ("POST", "/undo", {}),
    ],
)
async def test_one_keys_session_is_not_there_for_another(method, path, body, tmp_path):
    """G10: 404 for each call, nothing in the list, and its name in a request means nothing."""
    keys = tmp_path / "keys"
    keys.write_text("first-key\nsecond-key\n")
    keys.chmod(0o600)
    mine, other = ({"Authorization": f"Bearer {key}-key"} for key in ("first", "second"))
    async with running_server(fake_engine(), api_key_file=keys) as server:
        body_of = chat_body("hello")
        served = (await server.http.post(CHAT, json=body_of, headers=mine)).json()
        name = served["flashrt"]["session"]
        await call(server, method, f"/{name}{path}", body, 404, **other)
        await call(server, "GET", "", None, 401)
        assert (await call(server, "GET", "", **other))["data"] == []
        kept = await call(server, "GET", f"/{name}", **mine)
        asked = {**body_of, "flashrt_session": name}
        theirs = (await server.http.post(CHAT, json=asked, headers=other)).json()
        salted = {"cache_salt": "x", **asked}
        apart = (await server.http.post(CHAT, json=salted, headers=mine)).json()
        (found,) = (await call(server, "GET", "?cache_salt=x", **mine))["data"]
    assert kept["turns"] == 1
    assert theirs["flashrt"]["session"] not in (name, None)
    assert theirs["flashrt"]["prefix_action"] == "rebuild"
    assert found["id"] == apart["flashrt"]["session"]


async def test_a_call_waits_in_the_line_and_leaves_it_with_its_client(tmp_path):
    """Behind a request that is held; its client hangs up, and it was never carried out."""
    gate = GatedPerformer(fake_engine())
    log = tmp_path / "log"
    async with running_server(gate.engine, performer=gate, request_log=log) as server:
        gate.allow(MANY)
        session = (await server.chat("hello"))["flashrt"]["session"]
        gate.close()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.chat, "somebody else")
            await until(lambda: running(server))
            leaver = await server.stream()
            await leaver.send_all(post({"turns": 1}, f"/v1/sessions/{session}/undo"))
            await until(lambda: one_waits(server))
            await leaver.aclose()
            await until_states(server, DONE=1, CANCELLED=1)
            gate.allow(MANY)
        assert (await call(server, "GET", f"/{session}"))["turns"] == 1
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["operation"], line["terminal_state"]) for line in lines] == [
        (None, "DONE"),
        ("undo", "CANCELLED"),
        (None, "DONE"),
        ("show", "DONE"),
    ]


@pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq") and shutil.which("bash")),
    reason="the page's examples are for a shell with curl and jq",
)
async def test_the_pages_examples_print_what_it_says():
    """docs/sessions.md, run from its beginning to its end."""
    page = (ROOT / "docs" / "sessions.md").read_text()
    script = "".join(re.findall(r"^```sh\n(.*?)^```", page, flags=re.M | re.S))
    promised = "".join(re.findall(r"^```text\n(.*?)^```", page, flags=re.M | re.S))
    async with running_server(fake_engine(), chunk_tokens=64) as server:
        script = script.replace("http://127.0.0.1:8000", server.url)
        ran = await trio.run_process(
            ["bash", "-euo", "pipefail", "-c", script], capture_stdout=True, check=False
        )
    assert ran.stdout.decode() == promised
    assert ran.returncode == 0
