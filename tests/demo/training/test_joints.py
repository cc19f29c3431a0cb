"""Several requests in one text."""

import random

import pytest

from flashrt.demo.training.joints import IN_ORDER, TOGETHER, joined

PARTS = ["read a.txt", "what is 1 + 1?", 'say "hello"']


@pytest.mark.parametrize("forms", [IN_ORDER, TOGETHER])
@pytest.mark.parametrize("count", [2, 3])
def test_every_request_is_there_once_and_in_order(forms, count):
    """In each form, whatever stands between; and no mark is left to fill."""
    for form in forms:
        text = joined(random.Random(str(form)), PARTS[:count], [form])
        places = [text.find(part[1:]) for part in PARTS[:count]]
        assert -1 not in places
        assert places == sorted(places)
        assert "#" not in text


def test_forms_are_different_and_no_form_is_in_both_tables():
    """What asks for an order is not what asks for all at once."""
    assert len({*IN_ORDER, *TOGETHER}) == len(IN_ORDER) + len(TOGETHER)
