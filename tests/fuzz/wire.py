"""A client that sends any bytes, and reads whatever comes back as HTTP."""

import re
from collections.abc import Iterator

import attrs
import trio

from flashrt.http.server import Address

SILENCE_S = 0.15
"""After this the server is taken to wait for more; too short only means that less is read."""

END_WITHIN_S = 10
STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) [ -~]*\r\n")


@attrs.frozen
class Answer:
    """One response. `whole`: the connection did not end inside it."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    whole: bool


async def exchange(address: Address, data: bytes, *, cut: int = 0, wanted: int = 0) -> bytes:
    """Send, listen until nothing more is said, and leave; everything that was said.

    `cut`: where the bytes are sent in two pieces. `wanted`: answers that are awaited, however busy
    the machine is; what is random may have none. Raises TooSlowError if the server does not notice
    that its client has left.
    """
    said = b""
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        try:
            await stream.send_all(data[:cut])
            await trio.lowlevel.checkpoint()
            await stream.send_all(data[cut:])
            over = False
            while not over:
                waits = sum(answer.whole for answer in answers(said)) < wanted
                with trio.move_on_after(END_WITHIN_S if waits else SILENCE_S) as silence:
                    piece = await stream.receive_some()
                    said, over = said + piece, not piece
                over = over or silence.cancelled_caught
            await stream.send_eof()
            with trio.fail_after(END_WITHIN_S):
                async for piece in stream:
                    said += piece
        except trio.BrokenResourceError:
            pass  # it was closed with bytes of ours unread, which resets a connection
    return said


def answers(said: bytes) -> Iterator[Answer]:
    """The responses in what a server said. Raises AssertionError if it is anything else."""
    while said:
        head, gap, rest = said.partition(b"\r\n\r\n")
        line = STATUS_LINE.match(head + b"\r\n")
        assert line, f"no response: {said[:200]!r}"
        fields = (field.partition(b":") for field in head.split(b"\r\n")[1:])
        headers = {name.lower(): value.strip() for name, _, value in fields}
        body, said, whole = _body(rest, headers)
        yield Answer(int(line[1]), headers, body, whole and bool(gap))


def _body(rest: bytes, headers: dict[bytes, bytes]) -> tuple[bytes, bytes, bool]:
    """The body, what follows it, and whether it is all there."""
    if not rest or STATUS_LINE.match(rest):
        return b"", rest, True  # an answer to HEAD has the length of what it leaves out
    if headers.get(b"transfer-encoding") == b"chunked":
        return _chunks(rest)
    length = int(headers.get(b"content-length", len(rest)))
    return rest[:length], rest[length:], len(rest) >= length


def _chunks(rest: bytes) -> tuple[bytes, bytes, bool]:
    body = b""
    while True:
        size, gap, rest = rest.partition(b"\r\n")
        length = int(size, 16) if size else 0
        body, after = body + rest[:length], rest[length : length + 2]
        if not gap or after != b"\r\n":
            return body, b"", False
        rest = rest[length + 2 :]
        if length == 0:
            return body, rest, True
