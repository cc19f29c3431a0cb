"""The policy attaches by ids, inside a namespace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.prefix import Action

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


def hot_policy(ids, lookahead, namespace="a"):
    policy = AutoPrefixPolicy()
    policy.on_commit(namespace, ids, lookahead=lookahead)
    return policy


@given(hot=IDS, prompt=IDS, lookahead=st.integers(0, 1), salt=st.sampled_from("ab"))
def test_cached_and_new_make_the_prompt_and_only_equal_ids_are_cached(hot, prompt, lookahead, salt):
    """G5 and G10: what is cached is the same ids, of the same namespace, and really processed."""
    plan = hot_policy(hot, lookahead).plan(prompt, salt=salt)
    assert (*plan.ids[: plan.cached_tokens], *plan.new_ids) == tuple(prompt)
    if plan.action is Action.REBUILD:
        assert plan.cached_tokens == 0
    else:
        assert salt == "a"
        assert plan.cached_tokens == len(hot) - lookahead
        assert prompt[: plan.cached_tokens] == hot[: plan.cached_tokens]


@given(hot=IDS.filter(lambda ids: len(ids) > 1), more=IDS, lookahead=st.integers(0, 1))
def test_an_extension_is_never_read_again(hot, more, lookahead):
    """A prompt that goes on from the journal reuses everything that was processed."""
    plan = hot_policy(hot, lookahead).plan([*hot, *more], salt="a")
    assert plan.cached_tokens == len(hot) - lookahead


def test_an_equal_prompt_is_exact_and_not_an_extension():
    """Nothing is fed if all is processed; the pending id is fed if it is all that is left."""
    assert hot_policy([1, 2], 0).plan([1, 2], salt="a").action is Action.EXACT
    plan = hot_policy([1, 2, 3], 1).plan([1, 2, 3], salt="a")
    assert (plan.action, plan.new_ids) == (Action.EXACT, (3,))
    assert hot_policy([1, 2, 3], 1).plan([1, 2, 4], salt="a").action is Action.APPEND


def test_after_forget_everything_is_a_rebuild():
    """A state that was invalidated is never attached to."""
    policy = hot_policy([1, 2], 0)
    policy.forget()
    assert policy.hot is None
    assert policy.plan([1, 2, 3], salt="a").action is Action.REBUILD


def test_a_state_ahead_of_its_tokens_cannot_be_committed():
    """G2, at the seam: a negative lookahead means KV leads."""
    with pytest.raises(AssertionError, match="KV would lead"):
        AutoPrefixPolicy().on_commit("a", [1, 2], lookahead=-1)
