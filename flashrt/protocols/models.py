"""The model list, in the words of OpenAI and of Anthropic at once."""

from datetime import UTC, datetime
from typing import ClassVar, Protocol

import msgspec

from flashrt.errors import NotFound


class Card(Protocol):
    """What a model list says about the model."""

    @property
    def model_id(self) -> str: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def created(self) -> int: ...


class ModelNotFound(NotFound):
    """A model name that is not ours, where only ours is served."""

    code: ClassVar[str] = "model_not_found"


class Model(msgspec.Struct):
    """One entry. The window in tokens stands in three words."""

    id: str
    created: int
    max_model_len: int
    context_length: int
    display_name: str
    created_at: str
    max_input_tokens: int
    object: str = "model"
    type: str = "model"
    owned_by: str = "flashrt"
    lifecycle: str = "active"


class ModelList(msgspec.Struct):
    """The list, which is one page."""

    data: list[Model]
    first_id: str
    last_id: str
    has_more: bool = False
    object: str = "list"


def model_body(card: Card) -> bytes:
    """The model as `GET /v1/models/<id>` gives it."""
    return msgspec.json.encode(_model(card))


def model_list_body(card: Card) -> bytes:
    """The list of the one model."""
    return msgspec.json.encode(ModelList([_model(card)], card.model_id, card.model_id))


def check_model_name(name: str, card: Card, *, strict: bool) -> None:
    """Every name is served, since clients insist on theirs; under `strict` only our own."""
    if strict and name != card.model_id:
        raise ModelNotFound(
            f'The model "{name}" does not exist here; "{card.model_id}" does.', param="model"
        )


def _model(card: Card) -> Model:
    window = card.max_model_len
    created_at = datetime.fromtimestamp(card.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Model(card.model_id, card.created, window, window, card.model_id, created_at, window)
