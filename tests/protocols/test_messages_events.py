"""Events under their own names."""

from typing import get_args

from flashrt.protocols.messages_events import (
    MessageEvent,
    MessageStop,
    MessageUsage,
    Ping,
    ThinkingTokens,
    written,
)


def test_an_event_is_named_as_its_type():
    """Clients look at the name, and some at the type."""
    assert written(Ping()) == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert written(MessageStop({"a": 1})) == (
        b'event: message_stop\ndata: {"type":"message_stop","flashrt":{"a":1}}\n\n'
    )
    tags = [kind.__struct_config__.tag for kind in get_args(MessageEvent)]
    assert len(set(tags)) == len(tags) == 7


def test_of_a_request_that_has_no_record_nothing_is_counted():
    """It has not begun."""
    assert MessageUsage.of(None) == MessageUsage(0, 0, ThinkingTokens(0), 0)
