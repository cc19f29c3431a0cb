"""A server of canned answers, for what the real one never does: calls for ever, broken streams."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

DONE = b"data: [DONE]\n\n"


class Canned(HTTPServer):
    """Gives its answers in their order. `bodies`: what it was asked, `keys`: with which key."""

    def __init__(self, answers: tuple[bytes, ...], status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.status = status
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Canned

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.bodies.append(json.loads(self.rfile.read(length)))
        self.do_GET()

    def do_GET(self) -> None:
        self.server.keys.append(self.headers["Authorization"])
        answer = self.server.answers.pop(0) if self.server.answers else b""
        self.send_response(self.server.status, "As it was told")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def canned(*answers: bytes, status: int = 200) -> Iterator[Canned]:
    """Serve these bodies, in their order; behind them empty ones."""
    with Canned(answers, status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.005,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def event(**chunk: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def text(words: str) -> bytes:
    """An answer of words."""
    return event(choices=[{"delta": {"content": words}, "finish_reason": "stop"}]) + DONE


def tool_call(name: str, **arguments: str) -> bytes:
    """An answer that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    delta = {"tool_calls": [{"index": 0, "id": "call-1", "function": function}]}
    return event(choices=[{"delta": delta, "finish_reason": "tool_calls"}]) + DONE
