"""The soak against real servers: a sound one has no violations, and each planted fault is found."""

import io
import json
import os
import re
import socket
from types import SimpleNamespace

import pytest
import trio

from flashrt import serve
from flashrt.bench.soak import quiet
from flashrt.bench.soak.process import ServerProcess
from flashrt.bench.soak.run import Options, _Soak, main
from flashrt.bench.soak.wire import Place
from flashrt.engine.fake import FakeEngine
from flashrt.http.app import make_app
from flashrt.metrics.ledger import Ledger
from tests.whole.server import VOICE, fake_engine, running_server

KEY = "a-key"


async def soaked(url, *flags):
    """The exit status of a short soak of a server that already runs."""
    return await trio.to_thread.run_sync(
        main, ["--url", url, "--api-key", KEY, "--stall-s", "1", *flags]
    )


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n")
    return str(file)


def serving(key_file, engine=None, **wish):
    """A server with small limits."""
    small = {"chunk_tokens": 64, "max_queue_depth": 5, "client_stall_s": 1, "max_body_mb": 1}
    engine = engine or fake_engine(max_seq=2048)
    return running_server(engine, api_key_file=key_file, **{**small, **wish})


async def test_a_sound_server_has_no_violations(key_file, tmp_path, capsys):
    """150 actions of every kind; the figures are in the table and in the file."""
    file = tmp_path / "soak.json"
    async with serving(key_file) as server:
        status = await soaked(server.url, "--actions", "150", "--json", str(file))
    out = capsys.readouterr().out
    assert status == 0, out
    assert out.splitlines()[-1].endswith(" 0 violations")
    figures = json.loads(file.read_text())
    assert figures["actions"] == 150
    assert figures["answers"]["equal"] > 30


def only_on(path, alter):
    """An alteration of the body's pieces, for answers of one path."""
    return lambda asked, piece: alter(piece) if asked == path else piece


def changed(old, new):
    """Every `old` in a piece is `new`."""
    return lambda piece: piece.replace(old, new)


def with_another_first_id(piece):
    """Its first digit is the next one."""
    return re.sub(
        rb'("completion_token_ids":\[)([1-9])', lambda m: m[1] + b"%d" % (int(m[2]) % 9 + 1), piece
    )


CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"

ALTERED = {
    "a second [DONE]": (only_on(CHAT, changed(DONE, DONE + DONE)), "an event behind [DONE]"),
    "no [DONE]": (only_on(CHAT, changed(DONE, b"")), "a stream without an ending"),
    "another first id": (only_on(CHAT, with_another_first_id), "the reference has"),
    "other words": (only_on(CHAT, changed(b'"content":"', b'"content":"zz')), "text of its ids"),
    "a running request that is none": (
        only_on("/health", changed(b'"running":null', b'"running":true')),
        "True runs",
    ),
    "errors without their shape": (
        only_on(CHAT, changed(b'"error":', b'"fault":')),
        "an error body of another shape",
    ),
}


def altering(app, alter):
    """The application, its answers' bodies altered on their way out."""
    inner = app.asgi_app

    async def asgi_app(scope, receive, send):
        async def send_altered(message):
            if message.get("body"):
                message = {**message, "body": alter(scope["path"], message["body"])}
            if message["type"] == "http.response.start":
                # Altered bodies have other lengths.
                fields = [(k, v) for k, v in message["headers"] if k.lower() != b"content-length"]
                message = {**message, "headers": fields}
            await send(message)

        await inner(scope, receive, send_altered)

    app.asgi_app = asgi_app
    return app


@pytest.mark.parametrize("fault", ALTERED)
async def test_an_altered_answer_is_a_violation(fault, key_file, monkeypatch, capsys):
    """A server whose answers are wrong in one way: the words say in which, and what repeats it."""
    alter, words = ALTERED[fault]
    monkeypatch.setattr(quiet, "QUIET_WITHIN_S", 0.3)
    monkeypatch.setattr(serve, "make_app", lambda *parts: altering(make_app(*parts), alter))
    async with serving(key_file) as server:
        status = await soaked(server.url, "--actions", "30", "--clients", "4")
    out = capsys.readouterr().out
    assert status == 1, out
    assert [line for line in out.splitlines() if "VIOLATION" in line and words in line], out
    assert "--seed 1 --clients 4" in out.splitlines()[-1]


async def test_a_record_that_is_never_closed_is_a_violation(key_file, monkeypatch, capsys):
    """The clients know how many requests got as far as that."""
    closed, close = [], Ledger.close

    def leaky(ledger, record):
        closed.append(record)
        if len(closed) % 5:
            close(ledger, record)

    monkeypatch.setattr(quiet, "QUIET_WITHIN_S", 0.3)
    monkeypatch.setattr(Ledger, "close", leaky)
    async with serving(key_file) as server:
        status = await soaked(server.url, "--actions", "60")
    out = capsys.readouterr().out
    assert status == 1
    assert "VIOLATION afterwards: the server has counted" in out


class ForgetfulEngine(FakeEngine):
    """Restores a state that is not quite the one that was saved."""

    def restore(self, capsule):
        super().restore(capsule)
        self._processed[0] ^= 1


async def test_a_wrong_restore_is_a_violation(key_file, capsys):
    """Answers that look whole, with ids that a cold run would not give."""
    engine = ForgetfulEngine(vocab_size=VOICE.tokenizer.vocab_size, max_seq=2048)
    async with serving(key_file, engine) as server:
        status = await soaked(server.url, "--actions", "60")
    assert status == 1
    assert "the reference has" in capsys.readouterr().out


def test_without_a_server_there_is_no_soak(capsys):
    """Nobody listens: a sentence, and status 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        status = main(["--url", f"http://127.0.0.1:{taken.getsockname()[1]}", "--actions", "1"])
    assert status == 1
    assert "there is no server to soak" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--clients", "0"], "'0' must be a whole number of at least 1"),
        (["--actions", "many"], "'many' must be a whole number of at least 1"),
        (["--url", "https://localhost"], "'https://localhost' is not like http://"),
        (["--url", "localhost:8000"], "'localhost:8000' is not like http://"),
        (["--json", "/no/such/folder/x"], "/no/such/folder/x"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_starts(flags, words, capsys):
    """A sentence that names the value, not an error after an hour."""
    with pytest.raises(SystemExit):
        main(flags)
    assert words in capsys.readouterr().err


def test_what_the_process_holds_is_read_every_thousand_actions():
    """So that growth is seen where it begins, and not only that there was some."""
    place = Place("127.0.0.1", 1)
    process = ServerProcess(SimpleNamespace(pid=os.getpid()), place, io.BytesIO())
    options = Options(None, "", 8, 3500, 1.0, 1, 0.0, 1.0)
    running = _Soak(options, place, place, process)
    for _ in range(3500):
        running._tally.took("probe", 1.0)
        running._note_progress()
    assert list(running._outcome.usage) == [f"after action {n}" for n in (1000, 2000, 3000)]


@pytest.mark.slow
def test_two_thousand_actions_on_a_process_of_our_own(capsys):
    """The demo checkpoint, its reference beside it, and what the process holds: some minutes."""
    status = main(["--actions", "2000"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert "exit status 0 on SIGTERM" in out
    assert out.splitlines()[-1].endswith(" 0 violations")
