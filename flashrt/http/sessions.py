"""The routes of sessions. Each call is queued like a request, and answered when it is over."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs
from quart import Quart, Response, request

from flashrt.chat.session_call import AnySessionCall
from flashrt.http.guard import on_exit
from flashrt.http.security import Doorkeeper
from flashrt.items import Failed, Item, SessionItem
from flashrt.protocols.sessions import (
    read_create,
    read_delete,
    read_fork,
    read_list,
    read_show,
    read_undo,
    session_body,
)


class SessionService(Protocol):
    """What the routes of sessions need of `flashrt.service.AgentService`."""

    @property
    def epoch_s(self) -> float: ...
    def call(self, call: AnySessionCall, *, client: str, waiter: str) -> SessionItem: ...
    def leave(self, item: Item) -> None: ...


@attrs.frozen
class SessionCounter:
    """Serves one session call. `read_body` reads the current request's."""

    service: SessionService
    doorkeeper: Doorkeeper
    read_body: Callable[[], Awaitable[bytes]]

    async def serve(self, call: AnySessionCall) -> Response:
        """Queue the call, and answer when it is carried out. Raises what it was refused with."""
        item = self.service.call(
            call,
            client=self.doorkeeper.client(request),
            waiter=self.doorkeeper.waiter(request),
        )
        on_exit(request.scope, lambda: self.service.leave(item))
        async for end in item.sink:
            if isinstance(end, Failed):
                raise end.error
        assert item.answer is not None, "a call that is carried out has an answer"
        body = session_body(item.answer, self.service.epoch_s)
        return Response(body, mimetype="application/json")


def add_session_routes(app: Quart, counter: SessionCounter) -> None:
    """`/v1/sessions` and what lies below it."""

    @app.post("/v1/sessions")
    async def create_session() -> Response:
        return await counter.serve(read_create(await counter.read_body()))

    @app.get("/v1/sessions")
    async def list_sessions() -> Response:
        return await counter.serve(read_list(request.args.to_dict(flat=False)))

    @app.get("/v1/sessions/<session_id>")
    async def show_session(session_id: str) -> Response:
        return await counter.serve(read_show(session_id, request.args.to_dict(flat=False)))

    @app.delete("/v1/sessions/<session_id>")
    async def delete_session(session_id: str) -> Response:
        return await counter.serve(read_delete(session_id, request.args.to_dict(flat=False)))

    @app.post("/v1/sessions/<session_id>/fork")
    async def fork_session(session_id: str) -> Response:
        return await counter.serve(read_fork(session_id, await counter.read_body()))

    @app.post("/v1/sessions/<session_id>/undo")
    async def undo_session(session_id: str) -> Response:
        return await counter.serve(read_undo(session_id, await counter.read_body()))
