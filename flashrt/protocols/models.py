"""The model list."""

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
    """One entry. `max_model_len` and `context_length` are the window in tokens, in two words."""

    id: str
    created: int
    max_model_len: int
    context_length: int
    object: str = "model"
    owned_by: str = "flashrt"


class ModelList(msgspec.Struct):
    """The list."""

    data: list[Model]
    object: str = "list"


def model_body(card: Card) -> bytes:
    """The model as `GET /v1/models/<id>` gives it."""
    return msgspec.json.encode(_model(card))


def model_list_body(card: Card) -> bytes:
    """The list of the one model."""
    return msgspec.json.encode(ModelList([_model(card)]))


def check_model_name(name: str, card: Card, *, strict: bool) -> None:
    """Every name is served, since clients insist on theirs; under `strict` only our own."""
    if strict and name != card.model_id:
        raise ModelNotFound(
            f'The model "{name}" does not exist here; "{card.model_id}" does.', param="model"
        )


def _model(card: Card) -> Model:
    return Model(card.model_id, card.created, card.max_model_len, card.max_model_len)
