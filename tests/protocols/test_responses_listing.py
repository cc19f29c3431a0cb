"""Lists of input items: whole items by the official types, in pages without gaps."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseItemList

from flashrt.errors import BadRequest
from flashrt.protocols.responses_listing import item_page, read_page
from flashrt.stored import written
from tests.protocols.conversations import as_items, conversations


def page(items: list[dict[str, Any]], **query: str) -> dict[str, Any]:
    wish = read_page({name: [value] for name, value in query.items()})
    return json.loads(item_page("resp_1", written(items), wish))


@settings(max_examples=20)
@given(st.data(), conversations())
def test_every_item_of_a_conversation_is_shown_in_full(data, turns):
    """However a client spelled it."""
    items = data.draw(as_items(turns))
    shown = page(items, limit="100", order="asc")

    ResponseItemList.model_validate(shown)
    assert len(shown["data"]) == len(items)


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 5), st.sampled_from(["asc", "desc"]))
def test_pages_together_are_the_list(count, limit, order):
    """Each begins behind the last one's last."""
    items = [{"role": "user", "content": str(i)} for i in range(count)]
    found: list[str] = []
    after: dict[str, str] = {}
    for _ in range(count):
        one = page(items, limit=str(limit), order=order, **after)
        found += [item["content"][0]["text"] for item in one["data"]]
        assert one["first_id"] == one["data"][0]["id"]
        after = {"after": one["last_id"]}
        if not one["has_more"]:
            break
    wanted = [str(i) for i in range(count)]
    assert found == (wanted if order == "asc" else wanted[::-1])


def test_the_newest_come_first_and_twenty_of_them():
    """As in the API."""
    shown = page([{"role": "user", "content": str(i)} for i in range(30)])

    assert shown["data"][0]["content"][0]["text"] == "29"
    assert (len(shown["data"]), shown["has_more"]) == (20, True)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"order": "up"}, "order"),
        ({"after": "msg_x"}, "after"),
    ],
)
def test_a_wrong_parameter_is_named(query, param):
    """With its value."""
    with pytest.raises(BadRequest) as caught:
        page([{"role": "user", "content": "a"}], **query)
    assert caught.value.param == param
