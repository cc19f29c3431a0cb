"""`flashrt top` as a person meets it: a real process against a real server."""

import signal
import sys
from contextlib import AsyncExitStack

import pytest
import trio

from flashrt.cli import main
from flashrt.client.top import ENTER, HOME, HOW_TO_LEAVE, LEAVE
from tests.client.canned import canned
from tests.client.terminal import Terminal, environment, piped, terminal
from tests.http.busy import KEY, TEXTS, Busy, busy_server

FREE_PORT = 9
"""`discard`: nobody listens there."""


def watching(busy: Busy, *arguments: str, **environ: str):
    """`flashrt top` in a terminal that can move its cursor."""
    return terminal(busy.url, *arguments, does="top", **{"TERM": "xterm", **environ})


async def left(person: Terminal) -> int:
    """The exit status of one that gave the terminal back."""
    await person.until(LEAVE)
    return await person.ended()


async def test_it_is_redrawn_in_place_until_q():
    """The newest state, from the top left corner of a screen of its own."""
    async with busy_server() as busy, watching(busy, "--interval-s", "0.1") as person:
        await person.until("2 waiting, 1 in prefill")
        assert person.shown.startswith(ENTER + HOME + HOW_TO_LEAVE)
        before = len(person.shown)
        await busy.go_on()
        await person.until(f"done {len(TEXTS)}", before)
        await person.type("xq")
        assert await left(person) == 0


async def test_a_q_is_heard_while_the_next_look_is_far_away():
    """Nobody waits for an interval to end."""
    async with busy_server() as busy, watching(busy, "--interval-s", "3600") as person:
        await person.until("1 in prefill")
        await person.type("q")
        assert await left(person) == 0


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
async def test_however_it_ends_the_terminal_is_as_it_was(sent, status):
    """Ctrl-C is a way to leave; whoever ends it from outside can see that it worked."""
    async with busy_server() as busy, watching(busy, "--interval-s", "3600") as person:
        await person.until("1 in prefill")
        await person.interrupt(sent)
        assert await left(person) == status


async def test_a_small_terminal_gets_the_beginning():
    """No line is longer than the window, none is below it."""
    small = {"COLUMNS": "40", "LINES": "5"}
    async with busy_server() as busy, watching(busy, "--interval-s", "3600", **small) as person:
        await person.until("first token")
        await person.type("q")
        await left(person)
    drawn = person.shown.partition(HOME)[2].partition(LEAVE)[0]
    plain = drawn.replace("\x1b[K", "").replace("\x1b[J", "").replace("\x1b[36m", "")
    shown = plain.replace("\x1b[0m", "").split("\r\n")
    assert len(shown) == 5
    assert max(map(len, shown)) <= 40


async def test_a_server_that_goes_is_missed_and_what_it_said_stays():
    """It may come back; q leaves all the same."""
    async with AsyncExitStack() as servers:
        busy = await servers.enter_async_context(busy_server())
        async with watching(busy, "--interval-s", "0.1") as person:
            await person.until("1 in prefill")
            await busy.go_on()
            await servers.aclose()
            with trio.fail_after(20):
                await person.until("the figures are from before: no server answers")
                await person.until("hot session", len(person.shown))
                await person.type("q")
                assert await left(person) == 0


@pytest.mark.parametrize("arguments", [(), ("--once",)])
async def test_a_pipe_gets_it_once_as_plain_text(arguments):
    """No escape sequence, and the end of it."""
    async with busy_server() as busy:
        ran = await piped(busy.url, *arguments, does="top")
    shown = ran.stdout.decode()
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert shown.startswith("FlashRT  ready   fake")
    assert "128 of 132, 0 cached" in shown
    assert "\x1b" not in shown
    assert HOW_TO_LEAVE not in shown


@pytest.mark.parametrize(("arguments", "term"), [(("--once",), "xterm"), ((), "dumb")])
async def test_once_or_where_no_cursor_moves_a_terminal_gets_it_once(arguments, term):
    """As text behind what stands there."""
    async with busy_server() as busy, watching(busy, *arguments, TERM=term) as person:
        await person.until("at byte 18")
        assert await person.ended() == 0
        assert ENTER not in person.shown


async def test_a_key_shows_what_is_kept_from_others(tmp_path):
    """From the flag; without one the totals are shown, and the way to the rest."""
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    async with busy_server(api_key_file=keys) as busy:
        told = [
            (await piped(busy.url, *key, does="top")).stdout.decode()
            for key in ((), ("--api-key", "wrong"), ("--api-key", KEY))
        ]
    assert ["with an API key only" in text for text in told] == [True, False, False]
    assert ["does not know this API key" in text for text in told] == [False, True, False]
    assert ["at byte 18" in text for text in told] == [False, False, True]


async def test_without_a_server_it_says_so_and_how_to_start_one():
    """Status 1, one line, the address in it."""
    ran = await piped(f"http://127.0.0.1:{FREE_PORT}", does="top")
    assert ran.returncode == 1
    assert ran.stdout == b""
    message = ran.stderr.decode()
    assert message.startswith("flashrt: no server answers at http://127.0.0.1:9")
    assert "`flashrt serve` starts one" in message


HEALTH = (
    b'{"status": "faulted", "model": "m\\u001b[2J", "max_model_len": 1, "queued": 0,'
    b' "running": null, "capsules": {}, "totals": {}, "activity": null}'
)


async def test_a_stopped_engine_is_a_state_and_no_failure():
    """/health answers 503 then, and has as much to say; nothing in it steers the terminal."""
    with canned(HEALTH, status=503) as server:
        ran = await piped(server.url.removesuffix("/v1"), does="top")
    assert ran.returncode == 0
    assert ran.stdout.decode().startswith("FlashRT  faulted   m␛[2J")


async def test_what_is_no_answer_of_ours_is_an_error():
    """Another program's page, say."""
    with canned(b"<html>") as server:
        ran = await piped(server.url.removesuffix("/v1"), does="top")
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"flashrt: the server sent something that is no answer")


@pytest.mark.parametrize("given", ["0", "0.05", "-1", "4000", "nan", "soon"])
def test_an_interval_that_makes_no_sense_is_refused(given, capsys):
    """One line with the value and the limits, status 2."""
    assert main(["top", "--interval-s", given]) == 2
    message = capsys.readouterr().err
    assert f"{given!r} is no number of seconds from 0.1 to 3600" in message


@pytest.mark.parametrize("ending", ["", "/", "/v1"])
async def test_it_can_be_asked_with_and_without_the_path_of_the_protocols(ending):
    """Other clients need the `/v1`; /health lies beside it."""
    async with busy_server() as busy:
        command = [sys.executable, "-m", "flashrt", "top", "--url", f"{busy.url}{ending}"]
        ran = await trio.run_process(command, capture_stdout=True, env=environment())
    assert b"1 in prefill" in ran.stdout
