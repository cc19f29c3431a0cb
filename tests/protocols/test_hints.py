"""Session hints as real clients send them."""

import json
import re

import pytest

from flashrt.protocols.chat import read_chat
from flashrt.protocols.hints import SESSION_HEADERS, SESSION_MAX, session_in_headers
from tests.source import ROOT

USER_ID = json.dumps({"device_id": "d", "account_uuid": "", "session_id": "s-1"})


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ({}, None),
        ({"x-request-id": "r", "user-agent": "QwenCode/1"}, None),
        ({"session-id": "s", "thread-id": "s", "x-client-request-id": "s"}, "s"),
        ({"session_id": "s", "x-client-request-id": "s"}, "s"),
        ({"x-session-affinity": "ses_1", "x-session-id": "ses_1"}, "ses_1"),
        ({"x-affinity": "u"}, "u"),
        ({"x-claude-code-session-id": "c"}, "c"),
        ({"x-claude-code-session-id": "c", "x-claude-code-agent-id": "a"}, "c/a"),
        ({"session-id": ""}, None),
        ({"session-id": "x" * (SESSION_MAX + 1), "x-affinity": "u"}, "u"),
    ],
)
def test_each_clients_header_is_known(headers, session):
    """Codex, pi, OpenCode, Vibe, Claude Code and its helpers; the others send none."""
    assert session_in_headers(headers) == session


@pytest.mark.parametrize(
    ("fields", "session"),
    [
        ({}, None),
        ({"prompt_cache_key": "k"}, "k"),
        ({"metadata": {"user_id": USER_ID}}, "s-1"),
        ({"metadata": {"user_id": USER_ID}, "prompt_cache_key": "k"}, "k"),
        ({"metadata": {"user_id": "plain"}}, None),
        ({"metadata": {"user_id": "[" * 100_000}}, None),
        ({"metadata": {"user_id": '"text"'}}, None),
        ({"metadata": {"user_id": 7}}, None),
        ({"metadata": [1]}, None),
        ({"metadata": None, "user": "u", "store": False}, None),
    ],
)
def test_a_session_may_be_named_in_fields(fields, session):
    """And what stands there otherwise is no error."""
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    call = read_chat(json.dumps(body).encode())
    assert call.request.hints.session == session


def test_a_header_wins_over_fields_and_moves_nothing_else():
    """The namespace is made of key and salt alone, so a hint never lets anybody share."""
    body = {"messages": [{"role": "user", "content": "hi"}], "prompt_cache_key": "k"}
    call = read_chat(json.dumps(body).encode())
    hinted = call.hinted({"session-id": "s"})
    assert hinted.request.hints.session == "s"
    assert hinted.request.hints.prompt_cache_key == "k"
    assert call.hinted({}) is call


def test_the_documented_router_reads_the_same_headers_in_the_same_order():
    """docs/haproxy.cfg: a conversation is placed by the name under which its worker knows it."""
    text = (ROOT / "docs" / "haproxy.cfg").read_text()
    assert tuple(re.findall(r"set-var\(txn\.key\) req\.hdr\(([\w-]+)\)", text)) == SESSION_HEADERS
