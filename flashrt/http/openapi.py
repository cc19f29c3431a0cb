"""The OpenAPI document of the routes, made from the types that read and write their bodies."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from flashrt.chat.messages import ROLES
from flashrt.http.openapi_messages import MESSAGES_OPERATIONS, TURN
from flashrt.http.openapi_responses import ITEMS, RESPONSES_OPERATIONS
from flashrt.http.operations import ANSWER, BODY, DOOR, SESSION, STATE_STATUSES, Operation, State
from flashrt.protocols.chat import TOP_LOGPROBS_MAX, ChatFields
from flashrt.protocols.chat_answer import Chunk, Completion
from flashrt.protocols.completions import CompletionFields, TextCompletion
from flashrt.protocols.drain import DrainFields
from flashrt.protocols.fields import DRAFT_TOKENS_MAX, INT64
from flashrt.protocols.messages import MessagesFields
from flashrt.protocols.models import Model, ModelList
from flashrt.protocols.responses import ResponsesFields
from flashrt.protocols.sessions import (
    PAGE_MAX,
    CreateSessionFields,
    DeletedSession,
    ForkFields,
    SessionList,
    SessionObject,
    UndoFields,
)
from flashrt.protocols.tokens import DetokenizeFields, Text, TokenizeFields, Tokens

STATUSES: Mapping[int, str] = {
    400: "The request is wrong; `param` names the field.",
    401: "No API key, or a wrong one.",
    403: "A Host or Origin that this server does not answer to.",
    404: "No such model, answer, session or saved state here; of /health/ready: a soft drain.",
    408: "The body did not arrive in time.",
    409: "The session has no such boundary, or there is no room for so many.",
    413: "The body, or the prompt, is too long.",
    415: "The body is not declared as plain JSON.",
    429: "The queue is full; Retry-After may say when to come back.",
    500: "The server failed while it worked on this request.",
    503: "The server is loading, draining, or has stopped: go elsewhere.",
}

OF_NO_ROUTE: Mapping[int, str] = {
    400: "What came is no HTTP/1.1, or its target is no path; the connection is closed.",
    404: "No such route.",
    405: "The route does not take this method; Allow names those that it takes.",
    431: "The head of the request has more than 16 KiB.",
    501: "A Transfer-Encoding other than chunked.",
}
"""Answers to requests of no operation. The first and the last two have no body."""

MEANINGS: Mapping[str, str] = {
    "top_k": "Of the likeliest tokens, how many may come; 0 or -1 is off.",
    "min_p": "How likely a token must be, against the likeliest.",
    "repetition_penalty": "Above 1, what has come before is less likely.",
    "prompt_cache_key": "Whose prefixes may be reused, by default; else a hint at the session.",
    "cache_salt": "Whose prefixes may be reused, unless --namespace-from is api_key.",
    "enable_thinking": "Whether the model thinks, for templates that know it.",
    "thinking_budget": "Thinking tokens at most; 0 is no thinking.",
    "chat_template_kwargs": "Further arguments of the template.",
    "continue_final_message": "False: a last message of the assistant's own is not gone on with.",
    "flashrt_return_token_ids": "Adds token ids and the lineage to the `flashrt` block.",
    "flashrt_draft_tokens": "Tokens drafted a step; 0 is no drafts, null lets the server choose.",
    "flashrt_session": "Whose turn it is, by an id of /v1/sessions; an unknown one is a hint.",
    "flashrt_pin_prefix": "Keeps the state of the system turn (true), or of the last cut at or "
    "below so many tokens; false or 0 lets go.",
}
"""Request fields that OpenAI's API does not have, or that mean more here."""

BOUNDS: Mapping[str, Mapping[str, Any]] = {
    "temperature": {"minimum": 0, "maximum": 2},
    "top_p": {"exclusiveMinimum": 0, "maximum": 1},
    "top_k": {"minimum": -1},
    "min_p": {"minimum": 0, "maximum": 1},
    "presence_penalty": {"minimum": -2, "maximum": 2},
    "frequency_penalty": {"minimum": -2, "maximum": 2},
    "repetition_penalty": {"exclusiveMinimum": 0, "maximum": 10},
    "seed": {"minimum": -INT64, "maximum": INT64 - 1},
    "max_tokens": {"minimum": 1},
    "max_completion_tokens": {"minimum": 1},
    "max_output_tokens": {"minimum": 1},
    "thinking_budget": {"minimum": 0},
    "top_logprobs": {"minimum": 0, "maximum": TOP_LOGPROBS_MAX},
    "n": {"minimum": 1, "maximum": 1},
    "best_of": {"minimum": 1, "maximum": 1},
    "flashrt_draft_tokens": {"minimum": 0, "maximum": DRAFT_TOKENS_MAX},
}
"""What is refused of a field beyond its type, as its reader has it; a test compares the two."""

MESSAGE: Mapping[str, Any] = {
    "title": "Message",
    "description": "Further fields are tool_calls, tool_call_id, name and reasoning_content.",
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

NAMESPACE: Mapping[str, Mapping[str, Any]] = {
    "prompt_cache_key": {"type": "string"},
    "cache_salt": {"type": "string"},
}
"""Parameters of calls that have no body, as a request for an answer has them as fields."""

OPERATIONS = (
    Operation(
        "post",
        "/v1/chat/completions",
        "Answer a conversation, with tools, thinking and structured output.",
        Completion,
        ANSWER,
        ChatFields,
        Chunk,
        {"model": "any", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16},
    ),
    Operation(
        "post",
        "/v1/completions",
        "Go on from a text or from token ids.",
        TextCompletion,
        ANSWER,
        CompletionFields,
        TextCompletion,
        {"model": "any", "prompt": "Once upon a time", "max_tokens": 16},
    ),
    *RESPONSES_OPERATIONS,
    *MESSAGES_OPERATIONS,
    Operation(
        "post",
        "/tokenize",
        "The token ids of a text or a conversation.",
        Tokens,
        BODY,
        TokenizeFields,
        example={"prompt": "Once upon a time"},
    ),
    Operation(
        "post",
        "/detokenize",
        "The text of token ids.",
        Text,
        tuple(status for status in BODY if status != 404),
        DetokenizeFields,
        example={"tokens": [72, 105]},
    ),
    Operation(
        "post",
        "/v1/sessions",
        "Begin a session: empty, at a boundary of another, or at a saved state.",
        SessionObject,
        (*ANSWER, 409),
        CreateSessionFields,
        example={},
    ),
    Operation(
        "get",
        "/v1/sessions",
        "The sessions of this namespace, newest first.",
        SessionList,
        SESSION,
        query={
            **NAMESPACE,
            "limit": {"type": "integer", "minimum": 1, "maximum": PAGE_MAX},
            "after": {"type": "string"},
        },
    ),
    Operation(
        "get",
        "/v1/sessions/{session_id}",
        "One session: its boundaries, and what is held of it.",
        SessionObject,
        SESSION,
        query=NAMESPACE,
    ),
    Operation(
        "delete",
        "/v1/sessions/{session_id}",
        "Forget a session, and all that was kept for it alone.",
        DeletedSession,
        SESSION,
        query=NAMESPACE,
    ),
    Operation(
        "post",
        "/v1/sessions/{session_id}/fork",
        "Begin sessions at one boundary of this one, which stays as it is.",
        SessionList,
        (*ANSWER, 409),
        ForkFields,
        example={"n": 4},
    ),
    Operation(
        "post",
        "/v1/sessions/{session_id}/undo",
        "Go back to an earlier boundary; by default, over the last turn.",
        SessionObject,
        (*ANSWER, 409),
        UndoFields,
        example={"turns": 1},
    ),
    Operation("get", "/v1/models", "The model that is served.", ModelList, DOOR),
    Operation("get", "/v1/models/{name}", "One model.", Model, (*DOOR, 404)),
    Operation("get", "/", "A page that shows /health.", str, (403,), media="text/html"),
    Operation("get", "/health", "What the server is doing.", State, (403, 503)),
    Operation("get", "/health/ready", "Whether requests are taken.", State, (403, 404, 503)),
    Operation(
        "post",
        "/admin/drain",
        "Begin a soft drain, or end it: the conversations that are here go on, no new ones begin.",
        State,
        (*(status for status in BODY if status != 404), 503),
        DrainFields,
        example={},
    ),
    Operation(
        "get",
        "/metrics",
        "Totals and live state as series for Prometheus.",
        str,
        (403,),
        media="text/plain",
    ),
    Operation("get", "/openapi.json", "This document.", dict[str, Any], DOOR),
)


@cache
def document_body(version: str) -> bytes:
    """The document as it is sent; made once."""
    return msgspec.json.encode(document(version))


def document(version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    types = list(dict.fromkeys(_types()))
    schemas, components = msgspec.json.schema_components(
        types, schema_hook=_schema_of, ref_template="#/components/schemas/{name}"
    )
    for fields in (ChatFields, CompletionFields, ResponsesFields, MessagesFields, TokenizeFields):
        for name, field in components[fields.__name__]["properties"].items():
            field |= BOUNDS.get(name, {})
            if name in MEANINGS:
                field["description"] = MEANINGS[name]
            if name == "messages":
                kind = "Turn" if fields is MessagesFields else "Message"
                field |= {"items": {"$ref": f"#/components/schemas/{kind}"}, "minItems": 1}
    components["ResponsesFields"]["properties"]["input"] = dict(ITEMS)
    components["Message"] = dict(MESSAGE)
    components["Turn"] = dict(TURN)
    known = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, known)
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "FlashRT", "version": version},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": bearer}},
    }


def _types() -> Iterator[Any]:
    for operation in OPERATIONS:
        for kind in (operation.error, operation.body, operation.answer, operation.stream):
            if kind is not None:
                yield kind


def _schema_of(kind: type) -> dict[str, Any]:
    """`object`, in the types of bodies, is any value."""
    if kind is not object:
        raise NotImplementedError(f"no schema for {kind}")
    return {"description": "Any value."}


def _described(operation: Operation, known: Mapping[Any, Any]) -> dict[str, Any]:
    whole = {operation.media: {"schema": known[operation.answer]}}
    streamed = {} if operation.stream is None else _events(operation, known)
    responses = {"200": {"description": "The answer.", "content": {**whole, **streamed}}}
    # /health and /health/ready say the same with other statuses as with 200.
    of_state = operation.method == "get" and operation.answer is State
    for status in operation.refuses:
        kind = State if of_state and status in STATE_STATUSES else operation.error
        content = {"application/json": {"schema": known[kind]}}
        responses[str(status)] = {"description": STATUSES[status], "content": content}
    described: dict[str, Any] = {"summary": operation.summary, "responses": responses}
    if 401 in operation.refuses:
        # An empty entry: a server without keys asks for none.
        described["security"] = [{"key": []}, {}]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    parameters += (
        {"name": name, "in": "query", "schema": dict(schema)}
        for name, schema in operation.query.items()
    )
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        body = {"schema": known[operation.body], "example": operation.example}
        described["requestBody"] = {"required": True, "content": {"application/json": body}}
    return described


def _events(operation: Operation, known: Mapping[Any, Any]) -> dict[str, Any]:
    """A stream, by the schema of one event: a piece, the error that ends it, or the terminator."""
    value = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [known[operation.stream], known[operation.error]]},
    }
    event: dict[str, Any] = {
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"anyOf": [value, {"const": "[DONE]"}]}},
    }
    if operation.named_events:
        event["required"] = ["event", "data"]
        event["properties"] = {"event": {"type": "string"}, "data": value}
    return {"text/event-stream": {"schema": event}}
