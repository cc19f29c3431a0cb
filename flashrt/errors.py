"""Every error that FlashRT raises on purpose.

FlashRTError
├─ Refused               the client can do something about it; carries an HTTP status
│  ├─ BadRequest         400
│  │  └─ PreviousResponseNotFound 400  a Responses conversation that is not held (any more)
│  ├─ Unauthorized       401
│  ├─ Forbidden          403
│  ├─ NotFound           404
│  ├─ Conflict           409
│  ├─ PromptTooLong      413
│  ├─ BodyTooLarge       413
│  ├─ WrongMediaType     415
│  ├─ QueueFull          429
│  └─ Unavailable        503  loading, draining, faulted
│     └─ ServerStopping 503  the server stops, and the time for what runs is over
├─ EngineFailed          500  the live state was forgotten; the next request is served normally
│  └─ OutOfMemory             inside only: saved states go, and the step is tried once more
├─ DiskFault                  a file of a capsule could not be written or read: only time is lost
├─ ClientLeft                 nobody waits for the answer any more
├─ AnswerCancelled            somebody asked for its end, and whoever waits is told
├─ CannotServe                refused at start: the message names the flag, key, file or tensor
└─ NoAnswer                   of what asks a server: none there, a refusal, a stream that broke off
"""

from typing import ClassVar


class FlashRTError(Exception):
    """Base of every error raised on purpose."""


class Refused(FlashRTError):
    """A request that is not served. `status`, `kind` and `code` fill an OpenAI error object."""

    status: ClassVar[int] = 400
    kind: ClassVar[str] = "invalid_request_error"
    code: ClassVar[str | None] = None

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class BadRequest(Refused):
    """The request itself is wrong: not JSON, a wrong type, an unknown role."""


class PreviousResponseNotFound(BadRequest):
    """`previous_response_id` names an answer that is not held, or is another client's."""

    code = "previous_response_not_found"


class Unauthorized(Refused):
    """No API key, or a wrong one."""

    status = 401
    code = "invalid_api_key"


class Forbidden(Refused):
    """A Host or Origin that this server does not answer to."""

    status = 403
    code = "forbidden"


class NotFound(Refused):
    """No such route, session or saved state, or no such model under `--strict-model-name`."""

    status = 404
    code = "not_found"


class Conflict(Refused):
    """What is asked of a session cannot be done in the state that it is in."""

    status = 409
    code = "conflict"


class PromptTooLong(Refused):
    """The prompt leaves no room for one token of answer: it has more than `max_tokens`."""

    status = 413
    code = "context_length_exceeded"

    def __init__(
        self, message: str, *, prompt_tokens: int | None = None, max_tokens: int | None = None
    ) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens


class BodyTooLarge(Refused):
    """The request body is larger than the server reads."""

    status = 413
    code = "body_too_large"


class WrongMediaType(Refused):
    """A POST whose body is not declared as JSON."""

    status = 415
    code = "unsupported_media_type"


class QueueFull(Refused):
    """My queue is full: come back to me."""

    status = 429
    kind = "rate_limit_error"
    code = "queue_full"


class Unavailable(Refused):
    """Loading, draining or faulted: go elsewhere."""

    status = 503
    kind = "server_error"
    code = "unavailable"


class ServerStopping(Unavailable):
    """The answer was cut off: the server stops, and the time to finish is over."""

    code = "server_stopping"


class EngineFailed(FlashRTError):
    """A step of the engine raised. The live state is forgotten; capsules stay valid."""


class ClientLeft(FlashRTError):
    """Who asked has hung up. It ends the request, and nobody is there to read it."""


class AnswerCancelled(FlashRTError):
    """The answer was cancelled by its id: an ending, and no fault."""


class OutOfMemory(EngineFailed):
    """A step found no memory. With fewer capsules it may."""


class DiskFault(FlashRTError):
    """A file of a capsule could not be written, or must not be used. Names the file and why."""


class CannotServe(FlashRTError):
    """What is asked for at start cannot be served."""


class NoAnswer(FlashRTError):
    """A client gets no answer: nobody listens, the server refuses, or the stream broke off."""
