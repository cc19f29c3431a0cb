"""Requests as a good client sends them: what the fuzzers start from."""

import json
from typing import Any

import attrs

JSON = (b"Content-Type", b"application/json")


@attrs.frozen
class Draft:
    """A request in parts, still to be written out; `headers` without Content-Length."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ((b"Host", b"localhost"),)
    body: bytes | None = None
    chunked: bool = False

    def written(self) -> bytes:
        """The bytes of it. A header that states another length is left to say so."""
        named = {name.lower() for name, _ in self.headers}
        headers, body = list(self.headers), self.body or b""
        if self.chunked:
            headers.append((b"Transfer-Encoding", b"chunked"))
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        elif self.body is not None and b"content-length" not in named:
            headers.append((b"Content-Length", b"%d" % len(body)))
        lines = [b"%b %b HTTP/1.1" % (self.method, self.target)]
        lines += [name + b": " + value for name, value in headers]
        return b"\r\n".join([*lines, b"", b""]) + body


def post(path: str, fields: dict[str, Any], **more: Any) -> Draft:
    """A request with a JSON body."""
    headers = ((b"Host", b"localhost"), JSON)
    return Draft(b"POST", path.encode(), headers, json.dumps(fields).encode(), **more)


def get(path: str, *headers: tuple[bytes, bytes], method: bytes = b"GET") -> Draft:
    """A request without a body."""
    return Draft(method, path.encode(), ((b"Host", b"localhost"), *headers))


TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {
            "type": "object",
            "properties": {"at": {"type": "string", "maxLength": 3, "enum": ["a", "b"]}},
            "required": ["at"],
        },
    },
}
TALK = [
    {"role": "system", "content": "You look."},
    {"role": "user", "content": [{"type": "text", "text": "Look."}]},
    {
        "role": "assistant",
        "content": "I do.",
        "reasoning_content": "Where?",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"at": "a"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Nothing."},
]
CHAT = {"model": "any", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
EVERYTHING = {
    **CHAT,
    "messages": TALK,
    "tools": [TOOL],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "max_completion_tokens": 4,
    "stop": ["##"],
    "seed": 1,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repetition_penalty": 1.1,
    "logit_bias": {"5": 1},
    "logprobs": True,
    "top_logprobs": 2,
    "n": 1,
    "prompt_cache_key": "k",
    "cache_salt": "s",
    "metadata": {"user_id": '{"session_id": "s"}'},
    "chat_template_kwargs": {"a": 1},
    "reasoning_effort": "low",
    "reasoning": {"max_tokens": 4},
    "thinking_budget": 5,
    "flashrt_pin_prefix": 64,
    "flashrt_session": "sess_1",
    "flashrt_draft_tokens": 2,
    "flashrt_return_token_ids": True,
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
STRUCTURED = {
    **CHAT,
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
}

MESSAGES = {
    **CHAT,
    "system": [{"type": "text", "text": "You look.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {"role": "system", "content": "Twice."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Where?", "signature": ""},
                {"type": "text", "text": "I do."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "No.", "is_error": True},
                {"type": "text", "text": "Well?"},
            ],
        },
    ],
    "tools": [{"name": "look", "input_schema": SCHEMA}, {"type": "web_search_20250305"}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 2, "display": "omitted"},
    "output_config": {"effort": "low"},
    "stop_sequences": ["##"],
}

RESPONSES = {
    "model": "any",
    "instructions": "You look.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "flashrt1:Pw=="},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "a"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "No."},
        {"type": "custom_tool_call", "call_id": "c2", "name": "draw", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "Drawn."},
        {"type": "web_search_call", "id": "ws_1"},
        {"role": "developer", "content": "Twice."},
    ],
    "tools": [
        {"type": "function", "name": "look", "parameters": SCHEMA, "strict": False},
        {"type": "custom", "name": "draw", "format": {"type": "text"}},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "look"}]},
        {"type": "web_search"},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"name": "look"}]},
    "parallel_tool_calls": False,
    "max_output_tokens": 3,
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "store": True,
    "metadata": {"a": "b"},
}

GOOD = (
    post("/v1/responses", RESPONSES),
    post("/v1/responses/input_tokens", RESPONSES),
    post("/v1/responses", {**RESPONSES, "stream": True}, chunked=True),
    post("/v1/responses", {"input": "hi", "max_output_tokens": 2, "top_logprobs": 2}),
    post("/v1/messages?beta=true", MESSAGES),
    post("/v1/messages", {**MESSAGES, "stream": True}, chunked=True),
    post("/v1/messages/count_tokens", MESSAGES),
    post("/v1/chat/completions", CHAT),
    post("/v1/chat/completions", EVERYTHING),
    post("/v1/chat/completions", {**EVERYTHING, "tool_choice": "required"}),
    post("/v1/chat/completions", STRUCTURED),
    post("/v1/chat/completions", {**CHAT, "stream": True}),
    post("/v1/chat/completions", {**CHAT, "stream": True}, chunked=True),
    post("/v1/completions", {"model": "any", "prompt": "Once", "max_tokens": 3, "echo": True}),
    post("/v1/completions", {"prompt": [5, 6], "max_tokens": 3, "logprobs": 2}),
    post("/tokenize", {"messages": TALK, "tools": [TOOL]}),
    post("/tokenize", {"prompt": "Once"}, chunked=True),
    post("/detokenize", {"tokens": [72, 105]}),
    post("/v1/sessions", {"prompt_cache_key": "k", "cache_salt": "s"}),
    post("/v1/sessions", {"ignored": None}, chunked=True),
    get("/v1/sessions?limit=2&prompt_cache_key=k&cache_salt=s"),
    post("/admin/drain", {"undo": True}),
    get("/v1/models"),
    get("/v1/models/any"),
    get("/health"),
    get("/health/ready"),
    get("/metrics", (b"Accept-Encoding", b"gzip")),
    get("/openapi.json"),
    get("/"),
    get("/health", method=b"HEAD"),
    get(
        "/v1/chat/completions",
        (b"Origin", b"http://localhost"),
        (b"Access-Control-Request-Method", b"POST"),
        (b"Access-Control-Request-Headers", b"content-type"),
        method=b"OPTIONS",
    ),
)
