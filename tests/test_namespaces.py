"""Whose prefixes a request may see: named by the first source that counts (G10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.request import CacheHints
from flashrt.namespaces import NAMESPACE_SOURCES, namespace
from flashrt.settings import fields


def test_no_value_of_one_source_names_anothers_namespace():
    """G10: prompt_cache_key > cache_salt > the API key's salt, each in its own space."""
    spaces = [
        namespace(CacheHints(prompt_cache_key="x", cache_salt="y"), "k"),
        namespace(CacheHints(cache_salt="x"), "k"),
        namespace(CacheHints(), "x"),
        namespace(CacheHints(), "prompt_cache_key:x"),
        namespace(CacheHints(cache_salt="prompt_cache_key:x"), "k"),
    ]
    assert len(set(spaces)) == len(spaces)
    assert namespace(CacheHints(), "secret") == namespace(CacheHints(), "secret")
    assert "secret" not in namespace(CacheHints(), "secret")


texts = st.none() | st.text(max_size=3) | st.sampled_from(["client:", "cache_salt:x", "x"])
ORDERS = {
    "default": ["prompt_cache_key", "cache_salt", "client"],
    "cache_salt": ["cache_salt", "client"],
    "api_key": ["client"],
}


def source_and_value(sources, said):
    """The first source that the mode lets count and that says something."""
    return next((name, said[name]) for name in ORDERS[sources] if said[name] is not None)


def space_of(sources, said):
    """The namespace of a request that says this."""
    hints = CacheHints(said["prompt_cache_key"], said["cache_salt"])
    return namespace(hints, said["client"], sources)


sayings = st.fixed_dictionaries(
    {"prompt_cache_key": texts, "cache_salt": texts, "client": st.text(max_size=3)}
)


@pytest.mark.parametrize("sources", ORDERS)
@given(one=sayings, other=sayings)
def test_who_shares_a_namespace_is_said_by_the_first_source_that_counts(sources, one, other):
    """G10: the same source and the same value, or nothing is shared; "" is a value too."""
    same = source_and_value(sources, one) == source_and_value(sources, other)
    assert (space_of(sources, one) == space_of(sources, other)) == same
    assert space_of(sources, one).startswith(f"{source_and_value(sources, one)[0]}:")


@pytest.mark.parametrize("sources", ORDERS)
@given(said=sayings, hint=texts)
def test_what_does_not_count_and_a_session_hint_move_no_namespace(sources, said, hint):
    """They are hints: whoever sends another one stays with what was theirs."""
    bare = {name: value if name in ORDERS[sources] else None for name, value in said.items()}
    hints = CacheHints(said["prompt_cache_key"], said["cache_salt"], session=hint)
    assert namespace(hints, said["client"], sources) == space_of(sources, bare)


def named(**hints):
    """The namespace that a client names so."""
    return namespace(CacheHints(**hints), "somebody")


@given(
    name=st.text(st.characters(exclude_categories=()))
    | st.text(max_size=9).map(lambda text: text * 10_000)
)
def test_a_namespace_is_short_whatever_names_it(name):
    """It is remembered with every session and saved state: a name may be as long as a body, and
    half a pair of surrogates."""
    for space in (
        named(prompt_cache_key=name),
        named(cache_salt=name),
        namespace(CacheHints(), name),
    ):
        assert len(space) <= 64


def test_every_choice_of_the_setting_is_known_here():
    """And the other way round."""
    field = next(field for field in fields() if field.name == "namespace_from")
    assert list(NAMESPACE_SOURCES) == list(field.metadata["choices"]) == list(ORDERS)
