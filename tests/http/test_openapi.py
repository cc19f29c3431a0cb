"""The OpenAPI document says what the routes do: all of them, with every status."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import msgspec
import pytest

from flashrt.chat.breaks import BreakKind
from flashrt.errors import BadRequest, Conflict, NotFound, QueueFull, Unavailable
from flashrt.fsm.server import ServerState
from flashrt.http.app import make_app
from flashrt.http.openapi import (
    BOUNDS,
    DOOR,
    MEANINGS,
    OF_NO_ROUTE,
    OPERATIONS,
    STATUSES,
    Operation,
    State,
    document,
)
from flashrt.http.options import HttpOptions
from flashrt.namespaces import NAMESPACE_SOURCES
from flashrt.policy.prefix import Action
from flashrt.protocols.chat import ChatFields, read_chat
from flashrt.protocols.completions import read_completion
from flashrt.protocols.hints import AGENT_HEADER, SESSION_HEADERS
from flashrt.protocols.responses import ResponsesFields, read_responses
from tests.http.vocabulary import ScriptedService, post, read_until, serving, sse, whole_answer
from tests.protocols.test_responses import NOTHING
from tests.source import ROOT

DOCUMENT = document("1")
PAGE = (ROOT / "docs" / "http.md").read_text()
KEY = "right-key"
AT_THE_DOOR = (401, 403, 408, 415)
"""Decided before a route has a say: of few routes by default, of all of them under `slow`."""

CASES = [
    pytest.param(
        *(operation, status),
        marks=pytest.mark.slow if status in AT_THE_DOOR and number > 4 else (),
    )
    for number, operation in enumerate(OPERATIONS)
    for status in (200, *operation.refuses)
]


def named(case: object) -> str:
    return f"{case.method} {case.path}" if isinstance(case, Operation) else str(case)


def refs(value: Any) -> Iterator[str]:
    """Every reference in a piece of the document."""
    if isinstance(value, dict):
        yield from [value["$ref"]] if "$ref" in value else []
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        yield from refs(one)


def test_every_route_is_documented_and_nothing_else():
    """Method by method, as quart knows them."""
    app = make_app(ScriptedService(), HttpOptions())
    routes = {
        (method.lower(), re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    documented = {(method, path) for path, of in DOCUMENT["paths"].items() for method in of}
    assert documented == routes


def test_every_reference_leads_somewhere():
    """To a schema in the document."""
    found = set(refs(DOCUMENT["paths"])) | set(refs(DOCUMENT["components"]))
    assert found == {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}


def test_request_fields_are_those_that_are_read():
    """A field that is added to a protocol is in the document by itself."""
    fields = DOCUMENT["components"]["schemas"]["ChatFields"]["properties"]
    assert {"messages", "tools", "response_format", "tool_choice", "stream"} <= fields.keys()
    assert DOCUMENT["components"]["schemas"]["ChatFields"]["required"] == ["messages"]


@pytest.mark.parametrize(
    "name", ["ChatFields", "CompletionFields", "ResponsesFields", "MessagesFields"]
)
def test_every_field_of_our_own_is_explained(name):
    """OpenAI's pages do not have them."""
    fields = DOCUMENT["components"]["schemas"][name]["properties"]
    ours = {field for field in fields if field.startswith("flashrt_")}
    assert len(ours) == 4
    assert ours <= {field for field, schema in fields.items() if schema.get("description")}


def test_no_explanation_is_of_a_field_that_is_not_read():
    """Each is in a chat request, and so in the document."""
    fields = DOCUMENT["components"]["schemas"]["ChatFields"]["properties"]
    assert {name: fields[name]["description"] for name in MEANINGS} == MEANINGS


def refused(name: str, value: float) -> str | None:
    """The field for which a request with this one is refused, if it is."""
    rest: dict[str, Any] = {"prompt": "x"}
    read: Callable[[bytes], Any] = read_completion
    if name in ChatFields.__struct_fields__:
        read, rest = read_chat, {"messages": [{}], "logprobs": True}
    elif name in ResponsesFields.__struct_fields__:
        read, rest = (lambda body: read_responses(body, NOTHING)), {"input": "x"}
    try:
        read(msgspec.json.encode({**rest, name: value}))
    except BadRequest as refusal:
        return refusal.param
    return None


@pytest.mark.parametrize("name", BOUNDS)
def test_every_bound_of_the_document_is_the_one_that_is_kept(name):
    """At it a value is read, and just beyond it is not."""
    number = "number" in str(
        DOCUMENT["components"]["schemas"]["ChatFields"]["properties"].get(name)
    )
    step = 1e-6 if number else 1
    for bound, value in BOUNDS[name].items():
        outward = step if bound == "maximum" else -step
        exclusive = bound.startswith("exclusive")
        assert refused(name, value - outward if exclusive else value) is None
        assert refused(name, value if exclusive else value + outward) == name


WORDS = [
    *(f"{operation.method.upper()} {operation.path}" for operation in OPERATIONS),
    *MEANINGS,
    *SESSION_HEADERS,
    AGENT_HEADER,
    *(kind.value for kind in BreakKind),
    *(action.value for action in Action),
    *NAMESPACE_SOURCES,
    *(state.name.lower() for state in ServerState),
]


@pytest.mark.parametrize("word", WORDS)
def test_the_page_about_http_has_every_word_of_it(word):
    """docs/http.md: routes, fields, headers, and the words of the `flashrt` block."""
    assert f"`{word}`" in PAGE


@pytest.mark.parametrize("status", sorted({*STATUSES, *OF_NO_ROUTE}))
def test_the_page_about_http_has_every_status(status):
    """Those of routes, and those of what is no request of any."""
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| ")]
    assert any(str(status) in row for row in rows)


async def provoke(server, operation: Operation, status: int) -> httpx.Response | int:
    """Make the route answer with this status."""
    headers = {"Authorization": f"Bearer {KEY}"}
    path = re.sub(r"{\w+}", "ours", operation.path)
    if "{response_id}" in operation.path:
        hello = {"model": "ours", "input": "Hello"}
        kept = await server.client.post("/v1/responses", json=hello, headers=headers)
        path = path.replace("ours", kept.json()["id"])
    body = {**(operation.example or {}), "model": "ours"}
    match status:
        case 401:
            headers = {}
        case 403:
            headers["Host"] = "evil.example"
        case 404:
            path, body["model"] = re.sub("ours|resp_r1", "other", path), "other"
            if path == "/v1/sessions":
                server.service.refuse_with = NotFound("x")
            server.service.softly = True
        case 400 if operation.body is None:
            path = f"{path}?cache_salt=a&cache_salt=b&limit=0&stream=true"
        case 400 | 413:
            headers["Content-Type"] = "application/json"
            content = b"{" if status == 400 else b" " * 2000
            return await server.client.post(path, content=content, headers=headers)
        case 415:
            headers["Content-Type"] = "text/plain"
            return await server.client.post(path, content=b"{}", headers=headers)
        case 408:
            stream = await server.connect()
            await stream.send_all(post(b"{}", path, f"Authorization: Bearer {KEY}")[:-1])
            head = await read_until(stream, b"\r\n")
            return int(head.split()[1])
        case 409:
            server.service.refuse_with = Conflict("x")
        case 429:
            server.service.refuse_with = QueueFull("x")
        case 500:
            server.service.refuse_with = ValueError("x")
        case 503 if operation.answer is not State or operation.method == "post":
            server.service.refuse_with = Unavailable("x")
    server.service.live = status != 503
    server.service.takes = status != 503
    if operation.body is None:
        return await server.client.request(operation.method, path, headers=headers)
    return await server.client.post(path, json=body, headers=headers)


@pytest.mark.parametrize(("operation", "status"), CASES, ids=named)
async def test_every_documented_status_can_be_had_with_a_body_of_its_type(operation, status):
    """The example is served, and each refusal is an error object."""
    service = ScriptedService(whole_answer("a"))
    options = {"api_keys": (KEY,), "strict_model_name": True, "max_body_bytes": 1000}
    patience_s = 0.05 if status == 408 else 30  # a busy machine may take longer than that
    async with serving(service, body_timeout_s=patience_s, **options) as server:
        answer = await provoke(server, operation, status)
    if isinstance(answer, int):
        assert answer == status
        return
    assert answer.status_code == status
    state = status in (404, 503) and operation.method == "get" and operation.answer is State
    kind = operation.answer if status == 200 or state else operation.error
    media = operation.media if kind is operation.answer else "application/json"
    assert answer.headers["content-type"].partition(";")[0] == media
    if media == "application/json":
        msgspec.json.decode(answer.content, type=kind)


@pytest.mark.parametrize("operation", [o for o in OPERATIONS if o.stream], ids=named)
async def test_every_event_of_a_stream_is_of_the_documented_type(operation):
    """Up to the terminator, where there is one."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        answer = await server.client.post(
            operation.path, json={**operation.example, "stream": True}
        )
    events = sse(answer.text)
    if not operation.named_events:
        assert events.pop() == "[DONE]"
    assert events
    for event in events:
        msgspec.convert(event, operation.stream)


def test_every_status_that_is_documented_is_explained():
    """And no explanation is left over."""
    assert {s for o in OPERATIONS for s in o.refuses} == set(STATUSES)
    assert all(403 in operation.refuses for operation in OPERATIONS)
    assert set(DOOR) == {401, 403}
