"""`/v1/sessions` in JSON: what is read, what is refused by name, and what is answered."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.request import CacheHints
from flashrt.chat.session_call import (
    HERE,
    LAST_TURN,
    CreateSession,
    DeleteSession,
    ForkSession,
    HeldState,
    ListSessions,
    Mark,
    ReachableEnd,
    SessionDeleted,
    SessionPage,
    SessionReport,
    ShowSession,
    UndoSession,
)
from flashrt.errors import BadRequest
from flashrt.protocols.sessions import (
    FORKS_MAX,
    PAGE_DEFAULT,
    PAGE_MAX,
    DeletedSession,
    SessionList,
    SessionObject,
    read_create,
    read_delete,
    read_fork,
    read_list,
    read_show,
    read_undo,
    session_body,
)

NOBODY = CacheHints()
SOMEBODY = CacheHints("k", "s")
NAMED = {"prompt_cache_key": "k", "cache_salt": "s"}


def fork(body):
    return read_fork("x", body)


def undo(body):
    return read_undo("x", body)


@pytest.mark.parametrize(
    ("read", "body", "call"),
    [
        (read_create, {}, CreateSession(NOBODY)),
        (read_create, {"ignored": 1, **NAMED}, CreateSession(SOMEBODY)),
        (read_create, {"from_session": "y"}, CreateSession(NOBODY, "y", None, HERE)),
        (
            read_create,
            {"from_session": "y", "tokens": 5},
            CreateSession(NOBODY, "y", None, Mark(tokens=5)),
        ),
        (read_create, {"from_capsule": "c"}, CreateSession(NOBODY, None, "c")),
        (fork, {}, ForkSession(NOBODY, "x", 1, HERE)),
        (fork, {"n": FORKS_MAX, **NAMED}, ForkSession(SOMEBODY, "x", FORKS_MAX, HERE)),
        (fork, {"n": 4, "messages": 0}, ForkSession(NOBODY, "x", 4, Mark(messages=0))),
        (undo, {}, UndoSession(NOBODY, "x", LAST_TURN)),
        (undo, {"turns": 3, **NAMED}, UndoSession(SOMEBODY, "x", Mark(turns=3))),
        (undo, {"turns": None, "tokens": 0}, UndoSession(NOBODY, "x", Mark(tokens=0))),
    ],
)
def test_a_body_is_read_as_the_call_that_it_means(read, body, call):
    """What is left out has its default; what nobody knows is ignored."""
    assert read(msgspec.json.encode(body)) == call


@pytest.mark.parametrize(
    ("read", "body", "param"),
    [
        (read_create, b"[]", None),
        (read_create, b"{", None),
        (read_create, {"from_session": 1}, "from_session"),
        (read_create, {"from_session": "a", "from_capsule": "b"}, "from_capsule"),
        (read_create, {"turns": 1}, "from_session"),
        (read_create, {"from_capsule": "b", "tokens": 1}, "from_session"),
        (fork, {"n": 0}, "n"),
        (fork, {"n": FORKS_MAX + 1}, "n"),
        (fork, {"n": 10**30}, "n"),
        (fork, {"n": None}, "n"),
        (fork, {"turns": -1}, "turns"),
        (fork, {"turns": 1, "tokens": 1}, "tokens"),
        (undo, {"turns": 1.5}, "turns"),
        (undo, {"messages": "2"}, "messages"),
        (undo, {"tokens": 1, "messages": 1}, "messages"),
        (undo, {"cache_salt": 5}, "cache_salt"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_name(read, body, param):
    """400, and nothing is queued."""
    text = body if isinstance(body, bytes) else msgspec.json.encode(body)
    with pytest.raises(BadRequest) as refusal:
        read(text)
    assert refusal.value.param == param


def test_a_target_is_read_as_the_call_that_it_means():
    """Its parameters are those of a body's fields."""
    query = {"prompt_cache_key": ["k"], "cache_salt": ["s"], "other": ["1", "2"]}
    assert read_show("x", query) == ShowSession(SOMEBODY, "x")
    assert read_delete("x", {}) == DeleteSession(NOBODY, "x")
    assert read_list({}) == ListSessions(NOBODY, PAGE_DEFAULT)
    assert read_list({**query, "limit": ["7"], "after": ["y"]}) == ListSessions(SOMEBODY, 7, "y")


@given(st.integers(-10, 2 * PAGE_MAX).map(str) | st.text(max_size=4) | st.just("9" * 5000))
def test_a_limit_is_a_number_of_the_range_or_refused(limit):
    """In any script, with any blanks: only digits of ASCII are a number."""
    good = {str(number) for number in range(1, PAGE_MAX + 1)}
    good |= {"0" * (3 - len(one)) + one for one in good} | {f"0{one}" for one in good}
    if limit in good and len(limit) <= 3:
        assert read_list({"limit": [limit]}).limit == int(limit)
        return
    with pytest.raises(BadRequest) as refusal:
        read_list({"limit": [limit]})
    assert refusal.value.param == "limit"
    assert len(refusal.value.message) < 200


@pytest.mark.parametrize("name", ["limit", "after", "prompt_cache_key", "cache_salt"])
def test_a_parameter_that_is_given_twice_is_refused(name):
    """Nobody can tell which is meant, and one of them may name another's namespace."""
    with pytest.raises(BadRequest) as refusal:
        read_list({name: ["1", "1"]})
    assert refusal.value.param == name


REPORT = SessionReport(
    name="sess_1",
    created_at=10.25,
    used_at=20.75,
    turns=1,
    tokens=9,
    messages=3,
    hot=True,
    next_turn="append",
    reusable_tokens=9,
    parent="sess_0",
    states=(HeldState("ab", 9, "committed", "device", False),),
    boundaries=(ReachableEnd(1, 0, 0, True), ReachableEnd(0, 9, 3, True)),
)


def test_a_session_is_answered_field_by_field():
    """Times as unix seconds."""
    assert msgspec.json.decode(session_body(REPORT, 1_700_000_000.5)) == {
        "id": "sess_1",
        "object": "session",
        "created": 1_700_000_010,
        "used": 1_700_000_021,
        "turns": 1,
        "tokens": 9,
        "messages": 3,
        "hot": True,
        "next_turn": "append",
        "reusable_tokens": 9,
        "parent": "sess_0",
        "capsules": [
            {"id": "ab", "tokens": 9, "kind": "committed", "tier": "device", "pinned": False}
        ],
        "boundaries": [
            {"turns": 1, "tokens": 0, "messages": 0, "held": True},
            {"turns": 0, "tokens": 9, "messages": 3, "held": True},
        ],
    }
    msgspec.json.decode(session_body(REPORT, 0.0), type=SessionObject)


def test_a_page_and_a_deletion_are_answered_as_openai_does():
    """A list with `has_more`, and what was deleted."""
    page = session_body(SessionPage((REPORT, REPORT), has_more=True), 0.0)
    read = msgspec.json.decode(page, type=SessionList)
    assert (len(read.data), read.has_more, read.object) == (2, True, "list")
    gone = session_body(SessionDeleted("sess_1", 3, 2), 0.0)
    assert msgspec.json.decode(gone, type=DeletedSession) == DeletedSession("sess_1", 3, 2)
    assert msgspec.json.decode(gone)["deleted"] is True
