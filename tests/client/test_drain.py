"""`flashrt drain`: against a real server, and against none."""

import functools

import attrs
import pytest
import trio

from flashrt import cli
from flashrt.client import drain
from flashrt.client.server import Server as Client
from tests.gate import GatedPerformer
from tests.whole.server import VOICE, fake_engine, running_server
from tests.whole.stage import RENDERER
from tests.whole.watch import MANY, health, until


async def command(*argv: str) -> int:
    """Its exit status; it blocks, so it gets a thread."""
    return await trio.to_thread.run_sync(functools.partial(cli.main, ["drain", *argv]))


async def test_a_drain_is_begun_and_ended_at_the_root_or_at_v1(capsys):
    """The address that clients have is one of the server, too."""
    async with running_server(fake_engine()) as server:
        assert await command("--url", f"{server.url}/v1") == 0
        assert (await server.http.get("/health/ready")).status_code == 404
        assert await command("--url", f"{server.url}/", "--undo") == 0
        assert (await server.http.get("/health/ready")).status_code == 200
    said = capsys.readouterr().out
    assert f"{server.url}/v1 is soft draining\n" in said
    assert f"{server.url}/v1 is ready\n" in said


async def test_wait_returns_when_the_last_request_is_over(monkeypatch, capsys):
    """Not before; and what runs is not disturbed."""
    monkeypatch.setattr(drain, "POLL_S", 0.01)
    gate = GatedPerformer(fake_engine())
    answers, statuses = [], []

    async def ask() -> None:
        answers.append(await server.chat())

    async def wait() -> None:
        statuses.append(await command("--url", server.url, "--wait"))

    async def runs() -> bool:
        return (await health(server))["running"] is not None

    async def drains() -> bool:
        return (await health(server))["status"] == "soft_draining"

    async with (
        running_server(gate.engine, performer=gate) as server,
        trio.open_nursery() as both,
    ):
        both.start_soon(ask)
        await until(runs)
        both.start_soon(wait)
        await until(drains)
        assert not statuses
        gate.allow(MANY)
        await until(lambda: bool(statuses))
        assert "no request runs or waits" in capsys.readouterr().out
        await until(lambda: bool(answers))
    assert statuses == [0]
    assert answers[0]["choices"]


async def test_wait_does_not_overlook_a_prompt_that_is_being_made(monkeypatch, capsys):
    """It is neither queued nor running yet, and will be."""
    monkeypatch.setattr(drain, "POLL_S", 0.01)
    polls, statuses, answers = [], [], []
    state = Client.state
    monkeypatch.setattr(Client, "state", lambda self: polls.append(1) or state(self))
    voice = attrs.evolve(VOICE, renderer=RENDERER)

    async def ask() -> None:
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
        answers.append(await server.http.post("/v1/chat/completions", json=body))

    async def wait() -> None:
        statuses.append(await command("--url", server.url, "--wait"))

    async def is_rendered() -> bool:
        return (await health(server))["rendering"] == 1

    async with running_server(fake_engine(), voice=voice) as server, trio.open_nursery() as both:
        RENDERER.hold()
        try:
            both.start_soon(ask)
            await until(is_rendered)
            both.start_soon(wait)
            await until(lambda: len(polls) > 3)
            assert not statuses
        finally:
            RENDERER.let_go()
        await until(lambda: bool(statuses) and bool(answers))
        assert (await health(server))["rendering"] == 0
    assert statuses == [0]
    assert "no request runs or waits" in capsys.readouterr().out


async def test_the_key_is_needed_where_clients_need_one(tmp_path, capsys, monkeypatch):
    """Without it nothing is drained, and the server's own words say why."""
    keys = tmp_path / "keys"
    keys.write_text("sesame")
    async with running_server(fake_engine(), api_key_file=keys) as server:
        monkeypatch.delenv("FLASHRT_API_KEY", raising=False)
        assert await command("--url", server.url) == 1
        assert (await server.http.get("/health/ready")).status_code == 200
        assert "HTTP 401" in capsys.readouterr().err
        assert await command("--url", server.url, "--api-key", "sesame") == 0
        assert (await server.http.get("/health/ready")).status_code == 404


async def test_without_a_server_the_status_is_1(capsys):
    """`discard`: nobody listens there."""
    assert await command("--url", "http://127.0.0.1:9") == 1
    assert "no server answers at http://127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--undo", "--wait"], "argument --wait: not allowed with argument --undo"),
        (["--url", "here"], "argument --url: 'here' is no URL"),
        (["--api-key", "\n\x00k"], "the API key has characters that no HTTP header can carry"),
    ],
)
def test_what_makes_no_sense_is_refused(argv, words, capsys):
    """One line, and status 2."""
    assert cli.main(["drain", *argv]) == 2
    assert words in capsys.readouterr().err
