"""What the OpenAPI document says of the routes of Anthropic Messages."""

from collections.abc import Mapping
from typing import Any

from flashrt.http.operations import ANSWER, BODY, Operation
from flashrt.protocols.messages import MessagesFields, TokenCount
from flashrt.protocols.messages_content import ROLES
from flashrt.protocols.messages_error import MessagesError
from flashrt.protocols.messages_events import MessageEvent, WholeMessage

TURN: Mapping[str, Any] = {
    "title": "Turn",
    "description": "Blocks are text, thinking, tool_use and tool_result.",
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": list(ROLES)},
        "content": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": ["string", "object"]}},
                {"type": "null"},
            ]
        },
    },
}

MESSAGES_OPERATIONS = (
    Operation(
        "post",
        "/v1/messages",
        "Answer a conversation in the words of Anthropic's API.",
        WholeMessage,
        ANSWER,
        MessagesFields,
        MessageEvent,
        {"model": "any", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16},
        error=MessagesError,
        named_events=True,
    ),
    Operation(
        "post",
        "/v1/messages/count_tokens",
        "How many tokens the prompt of such a request has.",
        TokenCount,
        BODY,
        MessagesFields,
        example={"model": "any", "messages": [{"role": "user", "content": "Hello"}]},
        error=MessagesError,
    ),
)
