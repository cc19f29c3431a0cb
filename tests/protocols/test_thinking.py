"""The fields about thinking."""

import json

import pytest

from flashrt.errors import BadRequest
from flashrt.protocols.chat import read_chat


def asked(**fields):
    """(whether the template is told to think, the budget)."""
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    request = read_chat(json.dumps(body).encode()).request
    return request.template_args.get("enable_thinking"), request.thinking_tokens


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, (None, None)),
        ({"enable_thinking": False}, (False, None)),
        ({"chat_template_kwargs": {"enable_thinking": False}}, (False, None)),
        (
            {"chat_template_kwargs": {"enable_thinking": True}, "enable_thinking": False},
            (False, None),
        ),
        ({"reasoning_effort": "none"}, (False, None)),
        ({"reasoning_effort": "low"}, (True, 2048)),
        ({"reasoning_effort": "low", "enable_thinking": False}, (False, 2048)),
        ({"reasoning": {"effort": "medium"}}, (True, 8192)),
        ({"reasoning": {"effort": "medium", "max_tokens": 9}}, (True, 9)),
        ({"reasoning": {"max_tokens": 0}}, (False, 0)),
        ({"reasoning": {"enabled": False}}, (False, None)),
        ({"reasoning": {"summary": "auto"}}, (None, None)),
        ({"thinking_budget": 100}, (True, 100)),
    ],
)
def test_what_is_said_more_plainly_wins(fields, wanted):
    """A switch over an effort, a number over what a word means."""
    assert asked(**fields) == wanted


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "enormous"}, "reasoning_effort"),
        ({"reasoning": {"effort": "enormous"}}, "reasoning.effort"),
        ({"reasoning": {"max_tokens": -1}}, "reasoning.max_tokens"),
        ({"thinking_budget": -1}, "thinking_budget"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools"),
    ],
)
def test_what_is_no_effort_is_refused_by_name(fields, param):
    """With the path of the field."""
    with pytest.raises(BadRequest) as refused:
        asked(**fields)
    assert refused.value.param == param
