"""The connection: streams, refusals, and everything that can break."""

import json
import socket
import threading

import pytest

from flashrt.client.server import Server
from flashrt.errors import NoAnswer
from tests.client.canned import DONE, canned, event, text

BODY = {"messages": []}


def words(server, **wish) -> str:
    """The text of an answer."""
    with Server(server.url, **wish).chat(BODY) as chunks:
        return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def test_the_key_goes_with_every_request():
    """As a bearer; without a key nothing does."""
    with canned(text("a"), text("b")) as server:
        words(server, api_key="sesame")
        words(server)

    assert server.keys == ["Bearer sesame", None]


def test_comments_and_fields_that_nobody_knows_are_passed_over():
    """Heartbeats, other SSE fields, both kinds of line ends, nulls."""
    answer = (
        b": keep-alive\r\n\r\nevent: x\n\n"
        + event(choices=[{"delta": {"content": None}, "odd": 1}], odd=None)
        + event(choices=[{"delta": {"content": "yes"}}], usage=None).replace(b"\n", b"\r\n")
        + DONE
    )
    with canned(answer) as server:
        assert words(server) == "yes"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "broke off"),
        (event(choices=[{"delta": {"content": "ye"}}]), "broke off"),
        (event(error={"message": "The engine failed."}) + DONE, "^The engine failed.$"),
        (b"data: {oh\n\n" + DONE, "something that is no answer"),
        (b"data: []\n\n" + DONE, "something that is no answer"),
    ],
)
def test_a_stream_that_does_not_end_well_is_no_answer(answer, message):
    """Never taken for a whole one."""
    with canned(answer) as server, pytest.raises(NoAnswer, match=message):
        words(server)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (json.dumps({"error": {"message": "Too long."}}).encode(), r"^Too long\. \(HTTP 413\)$"),
        (b"<html>", r"^As it was told \(HTTP 413\)$"),
        (b'{"detail": "x"}', r"^As it was told \(HTTP 413\)$"),
    ],
)
def test_a_refusal_is_told_in_the_servers_words(body, message):
    """Or in those of its status line, if its body says nothing that can be read."""
    with canned(body, status=413) as server, pytest.raises(NoAnswer, match=message):
        words(server)


def test_a_server_names_its_models():
    """In its order; one without any cannot be talked to."""
    listed = json.dumps({"data": [{"id": "a"}, {"id": "b"}]}).encode()
    with canned(listed, b'{"data": []}') as server:
        assert Server(server.url).models() == ["a", "b"]
        with pytest.raises(NoAnswer, match="serves no model"):
            Server(server.url).models()


def test_nobody_there_is_told_with_the_url_and_the_way_out():
    """The port was somebody's until just now."""
    with canned() as server:
        pass

    with pytest.raises(NoAnswer, match=f"{server.url} .*refused.*`flashrt serve` starts one"):
        Server(server.url).models()


def test_a_stranger_on_the_port_is_no_answer():
    """Something that speaks, but not HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stranger = threading.Thread(target=lambda: listener.accept()[0].sendall(b"220 mail\r\n"))
        stranger.start()
        with pytest.raises(NoAnswer, match="broke: BadStatusLine"):
            Server(f"http://127.0.0.1:{listener.getsockname()[1]}").models()
        stranger.join()
