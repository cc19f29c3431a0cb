"""Reading a request body: bounded in size and time, and JSON only."""

import trio
from quart import Request
from werkzeug.exceptions import RequestEntityTooLarge, RequestTimeout

from flashrt.errors import BodyTooLarge, WrongMediaType


def require_json(request: Request) -> None:
    """Raise WrongMediaType unless the body is declared as plain JSON.

    A web page cannot send that type to another origin without asking first.
    """
    if request.mimetype != "application/json":
        raise WrongMediaType(
            f'The body is declared as "{request.mimetype}"; send "Content-Type: application/json".'
        )
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise WrongMediaType(
            f'The body is declared with "Content-Encoding: {encoding}"; send it uncompressed.'
        )


async def read_body(request: Request, *, limit_bytes: int, timeout_s: float) -> bytes:
    """The whole body. Raises BodyTooLarge as soon as it is known to be, and 408 after `timeout_s`.

    Counts while it reads: quart looks at its own limit for a chunked body only once it has
    collected it all.
    """
    too_large = BodyTooLarge(
        f"The request body is larger than {limit_bytes} bytes. Shorten it, or start the server "
        "with a larger --max-body-mb."
    )
    if (request.content_length or 0) > limit_bytes:
        raise too_large
    body = bytearray()
    try:
        with trio.fail_after(timeout_s):
            async for piece in request.body:
                body += piece
                if len(body) > limit_bytes:
                    raise too_large
    except trio.TooSlowError:
        raise RequestTimeout(f"The body did not arrive within {timeout_s:g} seconds.") from None
    except RequestEntityTooLarge:
        raise too_large from None
    return bytes(body)
