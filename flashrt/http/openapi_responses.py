"""What the OpenAPI document says of the routes of Responses."""

from collections.abc import Mapping
from typing import Any

from flashrt.http.operations import BODY, DOOR, Operation
from flashrt.protocols.responses import ResponsesFields
from flashrt.protocols.responses_events import AnyEvent
from flashrt.protocols.responses_listing import PAGE_MAX, ItemList
from flashrt.protocols.responses_object import DeletedResponse, InputTokens, Response

ITEMS: Mapping[str, Any] = {
    "description": "A text, or items: messages, calls and their results, reasoning, references.",
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "object"}},
        {"type": "null"},
    ],
}

HELD = (400, *DOOR, 404)

RESPONSES_OPERATIONS = (
    Operation(
        "post",
        "/v1/responses",
        "Answer a conversation in the words of the Responses API.",
        Response,
        (*BODY, 500, 503),
        ResponsesFields,
        AnyEvent,
        {"model": "any", "input": "Hello", "max_output_tokens": 16},
        named_events=True,
    ),
    Operation(
        "post",
        "/v1/responses/input_tokens",
        "How many tokens the prompt of such a request has.",
        InputTokens,
        BODY,
        ResponsesFields,
        example={"model": "any", "input": "Hello"},
    ),
    Operation(
        "get",
        "/v1/responses/{response_id}",
        "An answer as it is now.",
        Response,
        HELD,
        query={"stream": {"type": "string"}},
    ),
    Operation(
        "delete",
        "/v1/responses/{response_id}",
        "Forget an answer.",
        DeletedResponse,
        (*DOOR, 404),
    ),
    Operation(
        "get",
        "/v1/responses/{response_id}/input_items",
        "The items that an answer was given to.",
        ItemList,
        HELD,
        query={
            "limit": {"type": "integer", "minimum": 1, "maximum": PAGE_MAX},
            "order": {"enum": ["asc", "desc"]},
            "after": {"type": "string"},
        },
    ),
    Operation(
        "post",
        "/v1/responses/{response_id}/cancel",
        "End an answer at its next boundary.",
        Response,
        (*DOOR, 404),
    ),
)
