"""What an answer must look like, if the client said so."""

import attrs

from flashrt.chat.request import Json


@attrs.frozen
class JsonShape:
    """The visible text is one JSON value of this schema; `field` is where the client gave it."""

    schema: Json | bool
    field: str


@attrs.frozen
class CallShape:
    """The answer is a call of one of these functions, or several calls if `parallel`."""

    functions: tuple[Json, ...]
    parallel: bool = True


AnswerShape = JsonShape | CallShape
