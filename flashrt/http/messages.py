"""The routes of Anthropic Messages, and what their answers say about themselves."""

import uuid

from quart import Quart, Response, g, request

from flashrt.http.desk import JSON, Desk, Dialect
from flashrt.protocols.error import Fault
from flashrt.protocols.messages import count_body, read_messages
from flashrt.protocols.messages_answer import MessagesBody, MessagesStream
from flashrt.protocols.messages_error import messages_error_body
from flashrt.protocols.models import check_model_name

PATH = "/v1/messages"
REQUEST_ID = "request-id"

MESSAGES = Dialect(read_messages, MessagesStream, MessagesBody)


def add_messages_routes(app: Quart, desk: Desk) -> None:
    """Answers, and the count of a prompt's tokens."""

    @app.post(PATH)
    async def messages() -> Response:
        return await desk.serve(MESSAGES)

    @app.post(f"{PATH}/count_tokens")
    async def count_tokens() -> Response:
        asked = read_messages(await desk.body()).request
        check_model_name(asked.model, desk.service.card, strict=desk.strict)
        return Response(count_body(len(await desk.service.tokens(asked))), mimetype=JSON)

    @app.after_request
    async def name(answer: Response) -> Response:
        if request.path.startswith(PATH):
            answer.headers[REQUEST_ID] = request_id()
        return answer


def request_id() -> str:
    """The current request's: of its record, if it came to one."""
    found: str = g.setdefault("request_id", uuid.uuid4().hex)
    return found


def refusal(fault: Fault) -> bytes:
    """The body of an error answer to the current request."""
    return messages_error_body(fault, request_id())
