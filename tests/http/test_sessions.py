"""The routes of sessions: each is one call, of whoever asks, and it is left when it is answered."""

import pytest

from flashrt.chat.request import CacheHints
from flashrt.chat.session_call import (
    CreateSession,
    DeleteSession,
    ForkSession,
    ListSessions,
    Mark,
    ShowSession,
    UndoSession,
)
from flashrt.errors import Conflict, Unavailable
from tests.http.vocabulary import CHAT, HELLO, ScriptedService, serving, whole_answer

NOBODY, SOMEBODY = CacheHints(), CacheHints(cache_salt="s")


@pytest.mark.parametrize(
    ("method", "path", "body", "call"),
    [
        ("POST", "/v1/sessions", {}, CreateSession(NOBODY)),
        ("POST", "/v1/sessions", {"cache_salt": "s"}, CreateSession(SOMEBODY)),
        ("GET", "/v1/sessions?limit=3&after=ours", None, ListSessions(NOBODY, 3, "ours")),
        ("GET", "/v1/sessions/ours?cache_salt=s", None, ShowSession(SOMEBODY, "ours")),
        ("DELETE", "/v1/sessions/ours", None, DeleteSession(NOBODY, "ours")),
        ("POST", "/v1/sessions/ours/fork", {"n": 4}, ForkSession(NOBODY, "ours", 4)),
        ("POST", "/v1/sessions/ours/undo", {}, UndoSession(NOBODY, "ours")),
        (
            "POST",
            "/v1/sessions/ours/undo",
            {"tokens": 7},
            UndoSession(NOBODY, "ours", Mark(tokens=7)),
        ),
    ],
)
async def test_a_route_is_one_call_and_its_answer(method, path, body, call):
    """Nothing is left behind when it is answered."""
    async with serving() as server:
        answer = await server.client.request(method, path, json=body)
        again = await server.client.get("/v1/models")
    assert (answer.status_code, again.status_code) == (200, 200)
    assert server.service.calls == [call]
    assert server.service.balance == 0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/sessions/other", None),
        ("DELETE", "/v1/sessions/other", None),
        ("POST", "/v1/sessions/other/fork", {}),
        ("POST", "/v1/sessions/other/undo", {}),
    ],
)
async def test_what_a_call_was_refused_with_is_the_answer(method, path, body):
    """404 in OpenAI's shape."""
    async with serving() as server:
        answer = await server.client.request(method, path, json=body)
        await server.client.get("/v1/models")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"
    assert server.service.balance == 0


@pytest.mark.parametrize(("error", "status"), [(Conflict("x"), 409), (Unavailable("x"), 503)])
async def test_what_is_refused_before_it_is_queued_is_left_by_nobody(error, status):
    """No item was made."""
    service = ScriptedService()
    service.refuse_with = error
    async with serving(service) as server:
        answer = await server.client.post("/v1/sessions/ours/undo", json={})
    assert (answer.status_code, service.balance) == (status, 0)


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/sessions/a/fork", "/v1/sessions/a/undo"])
async def test_a_web_page_cannot_make_a_call(path):
    """Its forms are not JSON; and what it may not send without asking is asked for."""
    async with serving() as server:
        form = await server.client.post(path, data={"n": "1"})
        ask = {"Origin": "http://evil.example", "Access-Control-Request-Method": "DELETE"}
        asked = await server.client.options("/v1/sessions/a", headers=ask)
    assert form.status_code == 415
    assert asked.status_code == 403
    assert server.service.calls == []


async def test_an_allowed_page_may_delete():
    """The preflight says so."""
    origin = "http://page.example"
    async with serving(cors_origins=(origin,)) as server:
        ask = {"Origin": origin, "Access-Control-Request-Method": "DELETE"}
        answer = await server.client.options("/v1/sessions/a", headers=ask)
    assert "DELETE" in answer.headers["Access-Control-Allow-Methods"]


@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, HELLO), ("/v1/completions", {"prompt": "a"})], ids=["chat", "text"]
)
async def test_a_name_reaches_the_request_over_every_route(path, body):
    """Beside what a header says; one that can be none is left out."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        named = []
        for name in ("sess_1", "", "x" * 257, None):
            await server.client.post(
                path, json={**body, "flashrt_session": name}, headers={"session-id": "h"}
            )
            hints = (await server.service.opened()).request.hints
            named.append((hints.flashrt_session, hints.session))
        bad = await server.client.post(path, json={**body, "flashrt_session": 5})
    assert named == [("sess_1", "h"), (None, "h"), (None, "h"), (None, "h")]
    assert bad.status_code == 400
    assert bad.json()["error"]["param"] == "flashrt_session"
