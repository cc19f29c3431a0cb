"""What must hold when all clients have left: nothing runs, everything is counted, and it serves."""

from typing import Any

import trio

from flashrt.bench.soak.answers import whole_answer
from flashrt.bench.soak.tally import Records
from flashrt.bench.soak.wire import Fault, Gone, Place, exchange

QUIET_WITHIN_S = 15
PLAIN_WITHIN_S = 60
PLAIN = {
    "model": "any",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 4,
    "temperature": 0,
    "flashrt_return_token_ids": True,
}


async def health(place: Place) -> dict[str, Any]:
    """What the server says of itself. Raises Fault."""
    reply = await exchange(place, "GET", "/health", within_s=PLAIN_WITHIN_S)
    if reply.status != 200:
        raise Fault(f"/health answers {reply.status}: {reply.body[:200]!r}")
    report: dict[str, Any] = reply.json()
    return report


async def plain_request(place: Place) -> None:
    """The server answers a request as if nothing had been. Raises Fault or Gone."""
    reply = await exchange(place, "POST", "/v1/chat/completions", PLAIN, within_s=PLAIN_WITHIN_S)
    if reply.status != 200:
        raise Fault(f"a plain request is answered {reply.status}: {reply.body[:200]!r}")
    whole_answer(reply.json())


async def documented(place: Place) -> dict[tuple[str, str], frozenset[int]]:
    """The statuses of each method and path that the server's own description has, but for 500: it
    says that the server is at fault. Raises Fault."""
    reply = await exchange(place, "GET", "/openapi.json", within_s=PLAIN_WITHIN_S)
    if reply.status != 200:
        raise Fault(f"/openapi.json answers {reply.status}: {reply.body[:200]!r}")
    return {
        (method.upper(), path): frozenset(int(status) for status in operation["responses"]) - {500}
        for path, methods in reply.json()["paths"].items()
        for method, operation in methods.items()
    }


async def window(place: Place) -> int:
    """The model's window in tokens."""
    reply = await exchange(place, "GET", "/v1/models", within_s=PLAIN_WITHIN_S)
    if reply.status != 200:
        raise Fault(f"/v1/models answers {reply.status}: {reply.body[:200]!r}")
    return int(reply.json()["data"][0]["max_model_len"])


def counted(report: dict[str, Any], before: dict[str, Any]) -> dict[str, int]:
    """Requests by terminal state since `before`; both are reports of /health."""
    was, now = before["totals"]["requests"], report["totals"]["requests"]
    return {state: count - was.get(state, 0) for state, count in now.items()}


async def all_left(
    place: Place, before: dict[str, Any], records: Records
) -> tuple[dict[str, int], list[str]]:
    """The server's counts, and what is wrong after all clients have left."""
    report, wrong = before, ["/health was never asked"]
    with trio.move_on_after(QUIET_WITHIN_S):
        while wrong:
            try:
                report = await health(place)
                wrong = _still_there(report) + records.wrong(counted(report, before))
            except (Fault, Gone, OSError, trio.TooSlowError) as error:
                wrong = [f"/health does not answer: {error!r}"]
            await trio.sleep(0.05)
    try:
        await plain_request(place)
    except (Fault, Gone, OSError, trio.TooSlowError) as error:
        wrong = [*wrong, f"the next request is not served: {error!r}"]
    return counted(report, before), wrong


def _still_there(report: dict[str, Any]) -> list[str]:
    running, queued = report["running"], report["queued"]
    if running is None and queued == 0:
        return []
    return [f"{queued} requests wait and {running} runs {QUIET_WITHIN_S} s after all clients left"]
