"""Whose session a request belongs to, as real clients say it. Only ever a hint."""

import json
from collections.abc import Mapping
from typing import Any

SESSION_HEADERS = (
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "thread-id",
    "x-session-affinity",
    "x-session-id",
    "x-affinity",
)
"""Names of the main session, the most specific first."""

AGENT_HEADER = "x-claude-code-agent-id"
"""Tells the helpers of one session apart: they share no prefix."""

SESSION_MAX = 256
"""A longer name is none."""


def session_in_headers(headers: Mapping[str, str]) -> str | None:
    """The session that a request's headers name. Names of `headers` are in lower case."""
    for name in SESSION_HEADERS:
        session = session_name(headers.get(name))
        if session is not None:
            agent = session_name(headers.get(AGENT_HEADER))
            return session if agent is None else f"{session}/{agent}"
    return None


def session_in_fields(prompt_cache_key: str | None, metadata: object) -> str | None:
    """The session that a request's fields name."""
    return session_name(prompt_cache_key) or _in_user_id(metadata)


def _in_user_id(metadata: object) -> str | None:
    """`metadata.user_id` of some clients is itself JSON text with a session id inside."""
    user: Any = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    if not isinstance(user, str):
        return None
    try:
        found = json.loads(user)
    except (ValueError, RecursionError):
        return None
    return session_name(found.get("session_id")) if isinstance(found, dict) else None


def session_name(value: object) -> str | None:
    """`value`, if it can be the name of a session."""
    return value if isinstance(value, str) and 0 < len(value) <= SESSION_MAX else None
