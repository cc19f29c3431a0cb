"""The model list."""

import json

import attrs
import pytest

from flashrt.errors import NotFound
from flashrt.protocols.models import check_model_name, model_body, model_list_body


@attrs.frozen
class Card:
    model_id: str = "ours"
    max_model_len: int = 4096
    created: int = 1_700_000_000


def test_the_list_has_our_model_and_its_context_length():
    """One entry, with the length in tokens."""
    listed = json.loads(model_list_body(Card()))

    assert listed["object"] == "list"
    assert [entry["id"] for entry in listed["data"]] == ["ours"]
    assert listed["data"][0]["max_model_len"] == listed["data"][0]["context_length"] == 4096
    assert listed["data"] == [json.loads(model_body(Card()))]


def test_every_name_is_served_unless_strict():
    """Clients insist on names of their own; a strict server knows only its own."""
    check_model_name("gpt-x", Card(), strict=False)
    check_model_name("ours", Card(), strict=True)

    with pytest.raises(NotFound) as caught:
        check_model_name("gpt-x", Card(), strict=True)
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
