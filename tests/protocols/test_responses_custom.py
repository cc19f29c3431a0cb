"""A custom call's text is read out of its growing arguments, wherever they are cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.protocols.responses_custom import InputText


def heard(pieces: list[str]) -> str:
    reader = InputText()
    return "".join([*(reader.feed(piece) for piece in pieces), reader.rest()])


@given(st.text(), st.booleans(), st.sampled_from(["", " ", "\n"]), st.data())
def test_every_cut_gives_the_text(text, ascii_only, blank, data):
    """Escapes and pairs of surrogates are never told in halves."""
    arguments = (
        f'{blank}{{{blank}"input"{blank}:{blank}{json.dumps(text, ensure_ascii=ascii_only)}}}'
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(arguments)), max_size=6)))
    bounds = [0, *cuts, len(arguments)]

    assert heard([arguments[a:b] for a, b in pairwise(bounds)]) == text


def test_a_text_is_told_as_it_grows():
    """Not only at its end."""
    reader = InputText()

    assert [reader.feed(piece) for piece in ('{"inp', 'ut":"ab', "c\\", 'n"}')] == [
        "",
        "ab",
        "c",
        "\n",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("{}", "{}"),
        ("", ""),
        ('{"other":"x"}', '{"other":"x"}'),
        ('{"input":[1,"\u00fc"]}', '[1, "\u00fc"]'),
        ('{"other":1,"input":"x"}', "x"),
        ("no JSON", "no JSON"),
    ],
)
def test_arguments_of_another_shape_are_not_lost(arguments, text):
    """The client sees what the model wrote."""
    assert heard([arguments]) == text
