"""One client: its conversations, its connection, and the checks of every answer it gets."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from flashrt.bench.soak.answers import Answer, Stream, check_refusal, error_code, whole_answer
from flashrt.bench.soak.talks import Talk, is_comparable
from flashrt.bench.soak.tally import RECORDED, REFUSED_BY_ADMISSION, Tally
from flashrt.bench.soak.wire import Connection, Fault, Gone, Place, Reply, request_bytes

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
BUSY = frozenset({429})


@attrs.frozen
class Compared:
    """A finished greedy answer, and which action of whom it came from."""

    action: int
    name: str
    client: int
    answer: Answer


@attrs.define
class Target:
    """The server under test, as all clients know it. `window`: tokens; `stall_s`: seconds after
    which it gives up a reader that stops; `documented`: statuses by method and path."""

    place: Place
    tally: Tally
    documented: Mapping[tuple[str, str], frozenset[int]]
    window: int
    stall_s: float
    compare: Callable[[Compared], None]


@attrs.define
class Client:
    """Does one action after another. `action`, `name`: what it does now."""

    number: int
    target: Target
    talks: list[Talk] = attrs.field(factory=list)
    action: int = -1
    name: str = ""
    _kept: Connection | None = None

    async def ask(self, body: Mapping[str, Any], path: str = CHAT) -> Answer | None:
        """The checked answer, or None if the queue was full."""
        connection, status, headers = await self._sent("POST", path, body)
        return await self.read(connection, path, body, status, headers)

    async def expect(
        self,
        allowed: frozenset[int],
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str | None] | None = None,
        code: str | None = None,
    ) -> Reply:
        """A reply of one of these statuses; a refusal among them has the protocol's shape."""
        connection, status, given = await self._sent(method, path, body, headers)
        reply = await self._rest(connection, path, status, given)
        documented = self.target.documented.get((method, path), allowed)
        if status not in allowed | (BUSY & documented) or status not in documented:
            raise Fault(f"{method} {path}: status {status}, not one of {sorted(allowed)}")
        if status >= 400:
            check_refusal(reply, allowed | BUSY, code if status in allowed else None)
        return reply

    async def read(
        self,
        connection: Connection,
        path: str,
        body: Mapping[str, Any],
        status: int,
        headers: Mapping[str, str],
        pause: Callable[[], Any] | None = None,
        piece_bytes: int = 1 << 16,
    ) -> Answer | None:
        """The rest of an answer whose head has come; `pause` is awaited before each piece."""
        if status != 200:
            check_refusal(await self._rest(connection, path, status, headers), BUSY)
            return None
        self._resolve(path, 200)
        stream, whole = Stream(), bytearray()
        while (piece := await connection.piece(piece_bytes)) is not None:
            stream.feed(piece) if body.get("stream") else whole.extend(piece)
            if pause is not None:
                await pause()
        answer = (
            stream.end()
            if body.get("stream")
            else whole_answer(Reply(200, headers, bytes(whole)).json())
        )
        self.target.tally.records.finished += 1
        self._check_wish(body, answer)
        if is_comparable(body):
            self.target.compare(Compared(self.action, self.name, self.number, answer))
        return answer

    def sends(self, path: str) -> None:
        """A whole request is about to be sent: the service may get it."""
        self.target.tally.records.unknown += path in RECORDED

    def left(self) -> None:
        """The client did not wait for an answer."""
        self.target.tally.saw(self.name, "left")

    def head_came(self, path: str, status: int) -> None:
        """An answer began that is not read to its end."""
        self._resolve(path, status)

    async def hang_up(self) -> None:
        """Close the kept connection, if there is one."""
        if self._kept is not None:
            await self._kept.leave()
            self._kept = None

    # -- inside ----------------------------------------

    async def _sent(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] | None,
        headers: Mapping[str, str | None] | None = None,
    ) -> tuple[Connection, int, dict[str, str]]:
        """Send on the kept connection; one that the server has closed in between is made anew."""
        data = request_bytes(self.target.place, method, path, body, headers)
        while True:
            connection = await self._connection()
            self.sends(path)
            try:
                await connection.send(data)
            except Gone:
                if connection.answers:
                    await self.hang_up()
                    continue
                # A server that refuses a body early may close while it is still being sent.
            try:
                status, given = await connection.head(method)
            except Gone:
                first = connection.answers == 0
                await self.hang_up()
                if first:
                    raise
                continue
            return connection, status, given

    async def _connection(self) -> Connection:
        if self._kept is not None and not self._kept.reusable:
            await self.hang_up()
        if self._kept is None:
            self._kept = await Connection.open(self.target.place)
        return self._kept

    async def _rest(
        self, connection: Connection, path: str, status: int, headers: Mapping[str, str]
    ) -> Reply:
        body = bytearray()
        while (piece := await connection.piece()) is not None:
            body += piece
        reply = Reply(status, headers, bytes(body))
        self._resolve(path, status, error_code(reply) if status >= 400 else None)
        self.target.tally.records.finished += status == 200 and path in RECORDED
        return reply

    def _resolve(self, path: str, status: int, code: str | None = None) -> None:
        """What became of a request is known."""
        self.target.tally.saw(self.name, status)
        if path not in RECORDED:
            return
        records = self.target.tally.records
        records.unknown -= 1
        records.answered += status == 200
        records.refused += code in REFUSED_BY_ADMISSION

    def _check_wish(self, body: Mapping[str, Any], answer: Answer) -> None:
        """The answer is no longer than was asked for, has no stop string, and the form asked."""
        if len(answer.output_ids) > body.get("max_tokens", math.inf):
            raise Fault(f"{len(answer.output_ids)} tokens, max_tokens was {body['max_tokens']}")
        content = answer.message.get("content") or ""
        found = [text for text in body.get("stop", ()) if text in content]
        if found:
            raise Fault(f"the stop string {found[0]!r} is in {content!r}")
        calls = answer.message.get("tool_calls")
        if body.get("tool_choice") and answer.finish != "length" and not calls:
            raise Fault(f"a call was required; the answer is {answer.message}")
