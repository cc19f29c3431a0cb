"""One streamed answer, and when each of its chunks came."""

import bisect
import json
import socket
import time
from collections.abc import Sequence
from typing import Any

import attrs
import h11
import trio

from flashrt.bench.overhead.clocked import Span, own_seconds
from flashrt.bench.soak.wire import Place, request_bytes

RECEIVE_BYTES = 64 << 10
CHAT = "/v1/chat/completions"


@attrs.define
class Heard:
    """Seconds of the clock: when the request was sent, and when what of the answer came.

    `sizes`: bytes of each chunk as the server cut them. The first one opens the answer, before
    there is a token; the last ones end it.
    """

    sent_at: float
    head_at: float = 0.0
    at: list[float] = attrs.field(factory=list)
    sizes: list[int] = attrs.field(factory=list)
    body: bytearray = attrs.field(factory=bytearray)

    @property
    def first_token_at(self) -> float:
        """When the first chunk with something from the engine came."""
        return self.at[1]

    def head_ms(self) -> float:
        """From the request to the status line; the engine has no part in it."""
        return (self.head_at - self.sent_at) * 1000

    def first_token_ms(self, steps: list[Span]) -> float:
        """From the request to the first token, beyond the engine's own time."""
        own_s = own_seconds(steps, self.sent_at, self.first_token_at)
        return (self.first_token_at - self.sent_at - own_s) * 1000

    def per_token_ms(self, steps: list[Span], tokens: int) -> float:
        """From the first token to the last chunk, beyond the engine's own time, for each token."""
        own_s = own_seconds(steps, self.first_token_at, self.at[-1])
        return (self.at[-1] - self.first_token_at - own_s) * 1000 / max(1, tokens - 1)

    def delivery_ms(self, steps: list[Span]) -> list[float]:
        """From the end of each step to the chunk that came next."""
        ends = sorted(step.end for step in steps)
        behind = [bisect.bisect_right(ends, at) for at in self.at[1:]]
        return [(at - ends[n - 1]) * 1000 for at, n in zip(self.at[1:], behind, strict=True) if n]


class Listener:
    """A connection that sends one request after the other, and times their answers."""

    def __init__(self, stream: trio.SocketStream, place: Place) -> None:
        self._stream = stream
        self._place = place
        self._http = h11.Connection(h11.CLIENT)

    @classmethod
    async def connect(cls, place: Place, *, receive_buffer_bytes: int = 0) -> "Listener":
        """A small buffer makes a client that stops reading felt at the other end."""
        sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        await sock.connect((place.host, place.port))
        return cls(trio.SocketStream(sock), place)

    async def close(self) -> None:
        """Hang up."""
        await trio.aclose_forcefully(self._stream)

    async def hear(self, body: bytes, *, until_token: bool = False) -> Heard:
        """Send a chat request and read its answer; `until_token`: only to its first token."""
        data = request_bytes(self._place, "POST", CHAT, body)
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self._http.send(h11.Request(method="POST", target=CHAT, headers=[("Host", "any")]))
        self._http.send(h11.EndOfMessage())
        heard = Heard(sent_at=time.perf_counter())
        await self._stream.send_all(data)
        await self._read(heard, until_token)
        return heard

    async def go_on(self, heard: Heard) -> None:
        """Read the rest of an answer whose first token has come."""
        await self._read(heard, until_token=False)

    async def _read(self, heard: Heard, until_token: bool) -> None:
        now = 0.0
        while not (until_token and len(heard.at) > 1):
            event = self._http.next_event()
            match event:
                case h11.NEED_DATA:
                    data = await self._stream.receive_some(RECEIVE_BYTES)
                    now = time.perf_counter()
                    self._http.receive_data(data)
                case h11.Response():
                    heard.head_at = now
                    if event.status_code != 200:
                        raise RuntimeError(f"the server answered {event.status_code}")
                case h11.Data():
                    self._take(heard, event, now)
                case h11.EndOfMessage():
                    return
                case _:
                    raise RuntimeError(f"the answer is not whole: {event!r}")

    @staticmethod
    def _take(heard: Heard, event: h11.Data, now: float) -> None:
        if event.chunk_start:
            heard.at.append(now)
            heard.sizes.append(0)
        heard.at[-1] = now
        heard.sizes[-1] += len(event.data)
        heard.body += event.data


def chat(text: str, tokens: int, *, history: Sequence[Any] = (), **wish: Any) -> bytes:
    """A streamed chat request of so many tokens; `history`: the messages before `text`."""
    messages = [*history, {"role": "user", "content": text}]
    fields = {"model": "any", "messages": messages, "max_tokens": tokens, "stream": True, **wish}
    return json.dumps(fields).encode()
