"""The server as the client sees it: which models it has, and streamed answers.

Sockets block, on purpose: Ctrl-C raises out of any wait, also the one for the first byte, and all
that cancelling needs is that the connection is closed on the way out. The server then frees its
engine. There is a connection for each request, since its end is what a cancel is.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from json import dumps
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from flashrt.client.chunks import Chunk, Models, Refusal, State
from flashrt.client.health import Health
from flashrt.errors import NoAnswer

CONNECT_S = 10.0
"""How long a machine may take to accept a connection. An answer may take as long as it wants:
Ctrl-C ends the wait."""

CONNECTIONS: Mapping[str, type[HTTPConnection]] = {
    "http": HTTPConnection,
    "https": HTTPSConnection,
}

DATA = b"data:"
DONE = b"[DONE]"

T = TypeVar("T")


class Server:
    """A server at `url`, the part in front of `/chat/completions`."""

    def __init__(
        self, url: str, api_key: str | None = None, *, answer_s: float | None = None
    ) -> None:
        """`answer_s`: how long the server may be silent; None: for as long as it wants."""
        self._answer_s = answer_s
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def models(self) -> list[str]:
        """The names of what it serves, never none. Raises NoAnswer."""
        with self._answer("GET", "/models") as response, self._reading():
            models = _decoded(response.read(), Models)
        if not models.data:
            raise NoAnswer(f"{self.url} serves no model")
        return [model.id for model in models.data]

    def state(self) -> State:
        """What it is doing. Raises NoAnswer."""
        with self._root_answer("GET", "/health") as response, self._reading():
            return _decoded(response.read(), State)

    def health(self) -> Health:
        """The whole of it, also of a server whose engine has stopped. Raises NoAnswer."""
        with self._root_answer("GET", "/health", also=503) as response, self._reading():
            return _decoded(response.read(), Health)

    def drain(self, *, undo: bool = False) -> State:
        """Begin a soft drain, or end it; the status that it has now. Raises NoAnswer."""
        body = dumps({"undo": undo}).encode()
        with self._root_answer("POST", "/admin/drain", body) as response, self._reading():
            return _decoded(response.read(), State)

    @contextmanager
    def chat(self, body: Mapping[str, Any]) -> Iterator[Iterator[Chunk]]:
        """Ask; the chunks come as they are sent. Leaving the block cancels what is not over.

        The call and the chunks raise NoAnswer: no server, a refusal, or a stream that broke off.
        """
        with self._answer("POST", "/chat/completions", dumps(body).encode()) as response:
            yield self._chunks(response)

    def _answer(
        self, method: str, path: str, body: bytes | None = None
    ) -> AbstractContextManager[HTTPResponse]:
        return self._exchange(method, urlsplit(self.url).path + path, body)

    def _root_answer(
        self, method: str, path: str, body: bytes | None = None, also: int = 200
    ) -> AbstractContextManager[HTTPResponse]:
        """Of a route that lies beside `/v1`, not below it."""
        root = urlsplit(self.url).path.removesuffix("/v1")
        return self._exchange(method, root + path, body, also)

    @contextmanager
    def _exchange(
        self, method: str, path: str, body: bytes | None, also: int = 200
    ) -> Iterator[HTTPResponse]:
        """Any status but 200 and `also` is a refusal."""
        with closing(self._connect()) as connection:
            with self._reading():
                connection.request(method, path, body, self._headers)
                response = connection.getresponse()
            with closing(response):
                if response.status not in (200, also):
                    with self._reading():
                        raise _refusal(response)
                yield response

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        connection = CONNECTIONS[parts.scheme](parts.netloc, timeout=CONNECT_S)
        try:
            connection.connect()
        except OSError as error:
            raise NoAnswer(
                f"no server answers at {self.url} ({error.strerror or error}); "
                "`flashrt serve` starts one"
            ) from None
        connection.sock.settimeout(self._answer_s)
        return connection

    def _chunks(self, response: HTTPResponse) -> Iterator[Chunk]:
        """Until `[DONE]`. One line holds a whole event; others are comments and blanks."""
        while True:
            with self._reading():
                line = response.readline()
            if not line:
                raise NoAnswer(f"the answer of {self.url} broke off")
            if not line.startswith(DATA):
                continue
            event = line.removeprefix(DATA).strip()
            if event == DONE:
                return
            chunk = _decoded(event, Chunk)
            if chunk.error is not None:
                raise NoAnswer(chunk.error.message)
            yield chunk

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """What goes wrong on a connection that stands, in our words."""
        try:
            yield
        except (OSError, HTTPException) as error:
            raise NoAnswer(f"the connection to {self.url} broke: {error!r}") from None


def _refusal(response: HTTPResponse) -> NoAnswer:
    """What the server says about a request that it does not serve."""
    body = response.read()
    try:
        message = msgspec.json.decode(body, type=Refusal).error.message
    except msgspec.MsgspecError:
        message = response.reason
    return NoAnswer(f"{message} (HTTP {response.status})")


def _decoded(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise NoAnswer(f"the server sent something that is no answer: {error}") from None
