"""What the fuzzers found, each by its name, so that it is tried every time."""

import pytest
import trio
from quart_trio import QuartTrio

from flashrt.cli import main
from flashrt.engine.assets import find_model
from flashrt.errors import CannotServe
from flashrt.http.options import HttpOptions
from flashrt.http.server import serve_app
from flashrt.settings import load
from tests.fuzz.driving import faults_in
from tests.fuzz.good import CHAT, EVERYTHING, STRUCTURED, Draft, get, post
from tests.fuzz.wire import answers, exchange
from tests.whole.server import Server, fake_engine, running_server


def nested(depth: int) -> list:
    """Lists in lists."""
    value: list = []
    for _ in range(depth - 1):
        value = [value]
    return value


def chat(**fields) -> Draft:
    """A chat request."""
    return post("/v1/chat/completions", {**CHAT, **fields})


def with_arguments(text: str) -> Draft:
    """A talk in which a call was made with these arguments."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    assistant = {"role": "assistant", "content": "", "tool_calls": [call]}
    return chat(messages=[*CHAT["messages"], assistant, {"role": "tool", "content": "x"}])


POINTER = {"anyOf": [{"type": "null"}, {"$ref": "#/anyOf/" + "9" * 5000}]}
FORMAT = {"type": "json_schema", "json_schema": {"schema": POINTER}}
HANDSHAKE = (
    (b"Upgrade", b"websocket"),
    (b"Connection", b"Upgrade"),
    (b"Sec-WebSocket-Version", b"13"),
    (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
)

REQUESTS = {
    "a body too deep for the template": (chat(tools=[{"function": {"a": nested(500)}}]), 400),
    "an argument of the template too deep": (chat(chat_template_kwargs={"a": nested(500)}), 400),
    "a field that is only looked at too deep": (chat(metadata=nested(500)), 400),
    "a body too deep to be read": (
        Draft(b"POST", b"/tokenize", post("/tokenize", {}).headers, b"[" * 50_000),
        400,
    ),
    "a body of any depth that is served": (chat(metadata=nested(126)), 200),
    "arguments in a text too deep": (with_arguments('{"a":' * 500 + "1" + "}" * 500), 200),
    "a token id of thousands of digits": (chat(logit_bias={"9" * 5000: 1}), 400),
    "an index of thousands of digits in a reference": (chat(response_format=FORMAT), 400),
    "an origin that is no URL": (get("/health", (b"Origin", b"http://[")), 403),
    "an origin whose brackets do not match": (get("/health", (b"Origin", b"http://a]b")), 403),
    "a target that is only a query": (get("?a=b"), 400),
    "a target that is no URL": (get("http://%5b"), 400),
    "a target without a slash": (get("health"), 400),
    "a target that is a whole URL": (get("http://localhost/health"), 200),
    "a wish for a websocket": (get("/health", *HANDSHAKE), 200),
    "a wish for a websocket with a body": (
        get("/health", *HANDSHAKE, (b"Content-Length", b"4")),
        200,
    ),
    "a wish for a websocket where none is": (get("/nowhere", *HANDSHAKE), 404),
    "everything at once": (post("/v1/chat/completions", EVERYTHING), 200),
    "an answer that is enforced": (post("/v1/chat/completions", STRUCTURED), 200),
}


async def test_each_request_that_was_found_has_its_status(caplog):
    """Once they were 500, or an error in the log of the server."""
    wrong = {}

    async def one(server: Server, name: str, request: Draft, status: int) -> None:
        got = list(answers(await exchange(server.address, request.written(), wanted=1)))
        if [answer.status for answer in got] != [status]:
            wrong[name] = got

    async with running_server(fake_engine(), max_output_tokens=8) as server:
        async with trio.open_nursery() as nursery:
            for name, (request, status) in REQUESTS.items():
                nursery.start_soon(one, server, name, request, status)
        await server.chat()
    assert wrong == {}
    assert faults_in(caplog) == []


async def test_a_head_that_does_not_end_is_431():
    """A client may send it bit by bit; more than 16 KiB are not kept."""
    endless = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000
    async with running_server(fake_engine()) as server:
        (answer,) = answers(await exchange(server.address, endless, cut=20, wanted=1))
    assert answer.status == 431


async def test_an_event_of_a_stream_is_what_the_document_says_of_one():
    """Its `data` is the text of a piece, as the schema has it, not the piece itself."""
    async with running_server(fake_engine()) as server:
        document = (await server.http.get("/openapi.json")).json()
    operation = document["paths"]["/v1/chat/completions"]["post"]
    event = operation["responses"]["200"]["content"]["text/event-stream"]["schema"]
    text, done = event["properties"]["data"]["anyOf"]
    assert event["required"] == ["data"]
    assert done == {"const": "[DONE]"}
    assert {"$ref": "#/components/schemas/Chunk"} in text["contentSchema"]["anyOf"]


LINES = {
    "a whole number of thousands of digits": ("port = " + "9" * 5000, "is not TOML"),
    "the same where Python reads it": ("port = 0x" + "f" * 5000, "is a number of thousands"),
    "the same where auto is a choice": ("threads = 0x" + "f" * 5000, "at most 1024"),
    "a whole number that no float can hold": ("heartbeat_s = 1" + "0" * 400, "a number"),
    "brackets without end": ("port = " + "[" * 3000, "is not TOML"),
    "a NUL in the name of a file": ('request_log = "a\\u0000b"', "without control characters"),
    "a NUL in the name of the key file": ('api_key_file = "a\\u0000b"', "without control"),
    "a line end in a header": ('server_name = "a\\nb"', "without control characters"),
    "a header that no answer could have": ("server_name = ' a'", "printable ASCII"),
    "a list with a control character": ('cors_origin = ["\\u001b[2J"]', "without control"),
    "a budget that no figure could show": ("capsule_budget_mb = " + "9" * 400, "at most"),
    "more threads than torch can count": ("threads = 9_999_999_999", "at most 1024"),
    "an endless time": ("max_decode_ms = inf", "at most 86400000"),
    "a name longer than any path": ("model = '" + "x" * 5000 + "'", "at most 4096 characters"),
}


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, " "])
def test_a_config_that_is_no_path_is_refused_as_any_text_is(path):
    """It is read before the other settings, and has the same checks."""
    with pytest.raises(CannotServe, match=r"^--config is .*; it must be .* text") as refusal:
        load({"config": path}, {})
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("name", LINES)
def test_each_line_that_was_found_is_refused_with_a_reason(name, tmp_path, capsys):
    """Once they were tracebacks, at the start or later in every answer."""
    line, words = LINES[name]
    file = tmp_path / "flashrt.toml"
    file.write_text(line)
    assert main(["serve", "--config", str(file)]) == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == 1
    assert len(shown) < 400


@pytest.mark.parametrize("key", ["\udcff", "schl\u00fcssel", "a\x1bb"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key, tmp_path):
    """From the environment and from the file: it would let nobody in."""
    file = tmp_path / "keys"
    file.write_text(f"right\n{key}\n", errors="surrogateescape")
    for flags, environ in (({}, {"FLASHRT_API_KEY": key}), ({"api_key_file": str(file)}, {})):
        with pytest.raises(CannotServe, match=r"printable ASCII|is not text") as refusal:
            load(flags, environ)
        assert key not in str(refusal.value)


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".lan"])
async def test_a_host_that_no_name_server_takes_cannot_be_served(host):
    """Python refuses to ask for it."""
    options = HttpOptions(host=host, port=0)
    with pytest.raises(CannotServe, match="this is no host name"):
        await serve_app(QuartTrio("x"), options, stop=trio.Event())


@pytest.mark.parametrize("model", ["x" * 300, "~nobody-of-this-name/x"])
def test_a_model_that_is_no_path_cannot_be_served(model):
    """A name that is too long, and the home of nobody."""
    with pytest.raises(CannotServe, match="neither a directory nor a repository id"):
        find_model(model)


def test_orders_for_a_terminal_are_not_obeyed_but_shown(capsys):
    """A word on the command line that is complained about may hold anything."""
    assert main(["serve", "a", "b\nc\x1b[2J"]) == 2
    assert capsys.readouterr().err == (
        "flashrt: unrecognized arguments: b\\nc\\x1b[2J (see flashrt --help)\n"
    )
