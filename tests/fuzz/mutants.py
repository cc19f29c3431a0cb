"""Strategies for requests that went wrong: in their parts, in their JSON, and in their bytes."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from hypothesis import strategies as st

from tests.fuzz.good import GOOD, Draft

PARTS_MAX = 2
BYTES_MAX = 2
HERE = "\N{WHITE DRAUGHTS MAN}"
"""Stands in a body for JSON text that no encoder would write."""

NUMBERS = (
    *("-1", "0", "1", "-0.0", "0.5", "1e400", "-1e400", "1e-400", "9" * 19, "-" + "9" * 20),
    *("9" * 400, "9" * 5000, "1e5", "NaN", "Infinity", "01", "1.", "0x10"),
)
TEXTS = (
    *('""', '"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', '"\\uffff"', '"a\\nb"', '"<|im_end|>"'),
    *('"' + "x" * 3000 + '"', '"<tool_call>"', '"' + "9" * 5000 + '"', '"\\x"', '"'),
)
NESTS = tuple(
    opening * depth + "1" + closing * depth
    for depth in (20, 127, 200, 400, 900, 20_000)
    for opening, closing in (("[", "]"), ('{"a":', "}"), ('{"type":"array","items":', "}"))
)
TWISTED = tuple(json.dumps(nest) for nest in NESTS if len(nest) < 10_000)
"""Text whose content is deep JSON: some fields carry JSON inside a string."""

VALUES = (
    *("null", "true", "false", "[]", "{}", "[null]", '{"":null}', '{"a":1,"a":2}', "[[],{}]"),
    *('{"$ref":"#"}', '{"$ref":"#/%s"}' % ("9" * 5000), '{"type":"object","pattern":"("}'),
    *NUMBERS,
    *TEXTS,
    *NESTS,
    *TWISTED,
)

HEADERS = (
    *((b"Content-Length", value) for value in (b"0", b"-1", b"1", b"7", b"9" * 19, b"9" * 30)),
    *((b"Content-Length", value) for value in (b"", b"x", b"+5", b"5, 5", b"5, 6", b"\xff")),
    *((b"Transfer-Encoding", value) for value in (b"chunked", b"gzip, chunked", b"x", b"")),
    *(
        (b"Host", value)
        for value in (b"", b"[::1", b"evil.example", b"localhost:x", b"\xff", b"a@b")
    ),
    *((b"Origin", value) for value in (b"", b"null", b"http://[", b"http://a]b", b"\xff", b"//")),
    *((b"Origin", "http://\u2100".encode()), (b"Origin", b"http://localhost")),
    *((b"Content-Type", value) for value in (b"", b"text/plain", b"application/json;a*0*=x''%f")),
    *((b"Content-Type", b"application/json; charset=utf-16"), (b"Content-Encoding", b"gzip")),
    *((b"Authorization", value) for value in (b"Bearer \xff", b"Basic \xff", b"Digest a", b"")),
    *((b"Connection", value) for value in (b"close", b"keep-alive", b"Upgrade", b"\xff", b"")),
    *((b"Upgrade", value) for value in (b"websocket", b"h2c", b"x", b"")),
    *((b"Expect", b"100-continue"), (b"Expect", b"x"), (b"Cookie", b'a=\xff; =;; b="\\777"')),
    *((b"Sec-WebSocket-Version", b"13"), (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ==")),
    *((b"HTTP2-Settings", b"AAMAAABkAARAAAAAAAIAAAAA"), (b"Range", b"bytes=9-1")),
    *((b"session-id", b"\xff\x80"), (b"x-session-id", b"s" * 300), (b"X", b"y" * 20_000)),
    *((b"Access-Control-Request-Method", b"POST"), (b"Access-Control-Request-Headers", b"\xff ,")),
    *((b"a b", b"c"), (b"", b"c"), (b"\xff", b"c"), (b"X-Forwarded-For", b"\xff")),
)

TARGETS = (
    *(b"", b"?", b"?a=b", b"#", b"*", b"//", b"///v1/models", b"/%", b"/%00", b"/%ff", b"/%c3%28"),
    *(b"http://[", b"http://localhost/health", b"http://", b"health", b"/v1/models/%2F..%2f"),
    *(b"/v1/models/" + b"a" * 9000, b"/health?" + b"a=" * 900, b"/health?%ff=%", b"/health;x=y"),
    *(b"/v1/../health", b"/health/", b"/HEALTH", b"/\xff", b"/a b", b"localhost:80", b"/health#x"),
)
METHODS = (b"GET", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"TRACE", b"CONNECT", b"PRI", b"get", b"")

TOKENS = (
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\0", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b":", b" "),
    *(b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"5;a=b\r\nhello\r\n", b"HTTP/1.1", b","),
    *(b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"),
    *(b"[" * 3000, b'"', b"{", b"}", b"\xef\xbb\xbf", b"%00", b"\x00" * 100),
)

Draw = Callable[[st.SearchStrategy[Any]], Any]


def _another_header(draw: Draw, request: Draft) -> Draft:
    return attrs.evolve(request, headers=(*request.headers, draw(st.sampled_from(HEADERS))))


def _other_headers(draw: Draw, request: Draft) -> Draft:
    """Some are left out, some are said twice."""
    kept = draw(st.lists(st.sampled_from((*request.headers, (b"A", b"b"))), max_size=4))
    return attrs.evolve(request, headers=tuple(kept))


def _handshake(draw: Draw, request: Draft) -> Draft:
    """A web page that would rather have a socket."""
    wish = {b"Upgrade": b"websocket", b"Connection": b"Upgrade", b"Sec-WebSocket-Version": b"13"}
    wish[b"Sec-WebSocket-Key"] = b"dGhlIHNhbXBsZSBub25jZQ=="
    kept = draw(st.lists(st.sampled_from(sorted(wish.items())), min_size=2, unique=True))
    return attrs.evolve(request, method=b"GET", headers=(*request.headers, *kept))


def _other_target(draw: Draw, request: Draft) -> Draft:
    return attrs.evolve(request, target=draw(st.sampled_from(TARGETS)))


def _other_method(draw: Draw, request: Draft) -> Draft:
    return attrs.evolve(request, method=draw(st.sampled_from(METHODS)))


def _other_framing(draw: Draw, request: Draft) -> Draft:
    return attrs.evolve(request, chunked=not request.chunked)


def _other_value(draw: Draw, request: Draft) -> Draft:
    """One value somewhere in the body becomes what nobody would send."""
    if request.body is None:
        return attrs.evolve(request, body=draw(st.sampled_from(VALUES)).encode())
    try:
        fields = json.loads(request.body)
    except (ValueError, RecursionError):  # it was changed before
        return request
    place = draw(st.sampled_from(places(fields)))
    return _with_value(request, fields, place, draw(st.sampled_from(VALUES)))


def _with_value(request: Draft, fields: Any, place: tuple[Any, ...], value: str) -> Draft:
    text = json.dumps(replaced(fields, place, HERE), ensure_ascii=False)
    body = text.replace(json.dumps(HERE, ensure_ascii=False), value, 1)
    # A lone surrogate that an earlier change has left becomes bytes that are no UTF-8.
    return attrs.evolve(request, body=body.encode(errors="surrogatepass"))


PARTS = (
    *(_another_header, _other_headers, _handshake, _other_target, _other_method, _other_framing),
    *(_other_value, _other_value, _other_value),
)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values inside a JSON value, itself first."""
    inside: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    return [here, *(path for key, one in inside for path in places(one, (*here, key)))]


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """The same JSON value with another one at a place."""
    if not place:
        return new
    key, *rest = place
    changed = replaced(value[key], tuple(rest), new)
    if isinstance(value, dict):
        return {**value, key: changed}
    return [*value[:key], changed, *value[key + 1 :]]


def _flipped(draw: Draw, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data) - 1))
    return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]


def _spliced(draw: Draw, data: bytes) -> bytes:
    """A stretch of it is gone, or comes twice, or stands somewhere else."""
    start, end, to = sorted(draw(st.integers(0, len(data))) for _ in range(3))
    return draw(
        st.sampled_from(
            (data[:start] + data[end:], data[:end] + data[start:], data[:start] + data[end:to])
        )
    )


def _filled(draw: Draw, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.sampled_from(TOKENS)) + data[at:]


def _cut(draw: Draw, data: bytes) -> bytes:
    return data[: draw(st.integers(0, len(data)))]


def _followed(draw: Draw, data: bytes) -> bytes:
    """Something is pushed behind it: another request, or rubbish."""
    more = st.sampled_from([request.written() for request in GOOD]) | st.binary(max_size=40)
    return data + draw(more)


BYTES = (_flipped, _spliced, _filled, _cut, _followed)


def single_changes() -> Iterator[bytes]:
    """Every good request with every one change of a value, a header, its target or its method."""
    for request in GOOD:
        if request.body is not None:
            fields = json.loads(request.body)
            for place in places(fields):
                for value in VALUES:
                    yield _with_value(request, fields, place, value).written()
        for header in HEADERS:
            yield attrs.evolve(request, headers=(*request.headers, header)).written()
        for target in TARGETS:
            yield attrs.evolve(request, target=target).written()
        for method in METHODS:
            yield attrs.evolve(request, method=method).written()


@st.composite
def mutants(draw: Draw) -> bytes:
    """The bytes of one connection."""
    request = draw(st.sampled_from(GOOD))
    for change in draw(st.lists(st.sampled_from(PARTS), max_size=PARTS_MAX)):
        request = change(draw, request)
    data = request.written()
    for spoil in draw(st.lists(st.sampled_from(BYTES), max_size=BYTES_MAX)):
        data = spoil(draw, data) if data else data
    return data
