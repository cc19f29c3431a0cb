"""The policy attaches by ids, inside a namespace, to what brings the first token soonest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.prompt import Prompt
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.journal import Journal
from flashrt.policy.lineage import Span
from flashrt.policy.prefix import Action
from flashrt.policy.sessions import Session
from flashrt.policy.spacing import Kind
from flashrt.policy.tiers import Tier
from tests.policy.turns import Server, opening, said

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


def hot_policy(ids, lookahead, namespace="a"):
    policy = AutoPrefixPolicy(max_seq=100)
    processed = len(ids) - lookahead
    journal = Journal.of(ids, processed, (Span(processed),))
    policy.on_commit(Session("s", namespace), journal, lookahead=lookahead)
    return policy


def plan_of(policy, prompt, salt="a"):
    return policy.plan(Prompt.from_ids(prompt), salt=salt)


@given(hot=IDS, prompt=IDS, lookahead=st.integers(0, 1), salt=st.sampled_from("ab"))
def test_cached_and_new_make_the_prompt_and_only_equal_ids_are_cached(hot, prompt, lookahead, salt):
    """G5 and G10: what is cached is the same ids, of the same namespace, and really processed."""
    plan = plan_of(hot_policy(hot, lookahead), prompt, salt)
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
    plan = plan_of(hot_policy(hot, lookahead), [*hot, *more])
    assert plan.cached_tokens == len(hot) - lookahead


def test_an_equal_prompt_is_exact_and_not_an_extension():
    """Nothing is fed if all is processed; the pending id is fed if it is all that is left."""
    assert plan_of(hot_policy([1, 2], 0), [1, 2]).action is Action.EXACT
    plan = plan_of(hot_policy([1, 2, 3], 1), [1, 2, 3])
    assert (plan.action, plan.new_ids) == (Action.EXACT, (3,))
    assert plan_of(hot_policy([1, 2, 3], 1), [1, 2, 4]).action is Action.APPEND


def test_after_forget_everything_is_a_rebuild():
    """A state that was invalidated is never attached to."""
    policy = hot_policy([1, 2], 0)
    policy.forget()
    assert policy.hot is None
    assert plan_of(policy, [1, 2, 3]).action is Action.REBUILD


@pytest.mark.parametrize(("processed", "lookahead"), [(3, -1), (2, -1), (2, 1), (1, 0), (0, 2)])
def test_a_state_that_leads_or_trails_its_tokens_cannot_be_committed(processed, lookahead):
    """G2, at the seam: all ids are processed, or all but the newest."""
    journal = Journal([1, 2], processed)
    with pytest.raises(AssertionError, match="KV would lead or trail"):
        AutoPrefixPolicy(max_seq=9).on_commit(Session("s", "a"), journal, lookahead=lookahead)


FIRST = (*opening(1, 2, 3), *said(4, 5, 6))


def next_turn(prompt, served, *more):
    """The conversation so far, and the next message."""
    return (*prompt, *served.ids, *said(*more))


def test_a_side_request_costs_the_conversation_nothing():
    """What is hot is parked, and comes back with all it had processed (P8)."""
    server = Server()
    first = server.serve(FIRST)
    side = server.serve(said(9, 9))
    back = server.serve(next_turn(FIRST, first, 7))
    assert (side.action, back.action) == ("rebuild", "restore")
    assert back.plan.cached_tokens == len(FIRST) + len(first.ids) - 1
    assert back.plan.session.name == first.plan.session or back.plan.session.turn == 2


def test_a_fresh_conversation_shares_the_opening_only():
    """Equal system turn, another first message: restored, and a session of its own (P13)."""
    server = Server()
    server.serve(FIRST)
    fresh = server.serve((*opening(1, 2, 3), *said(8, 8, 8)))
    assert fresh.action == "restore"
    assert fresh.plan.entry.kind is Kind.SYSTEM
    assert fresh.plan.cached_tokens == len(opening(1, 2, 3))
    assert fresh.plan.session is None


def test_a_regenerated_turn_truncates_and_its_tail_goes_first():
    """The same prompt again starts before its generation prompt; the old answer is let go."""
    server = Server()
    server.serve(FIRST)
    again = server.serve(FIRST)
    assert again.action == "truncate"
    assert again.plan.new_ids == (50,)
    assert not again.plan.parks
    tails = [e for e in server.policy.store.entries() if e.first_to_go]
    assert all(e.kind is Kind.COMMITTED for e in tails)


def test_an_edit_of_an_earlier_turn_forks_and_the_tail_stays_alive():
    """The old branch can be gone on with at its end."""
    server = Server()
    first = server.serve(FIRST)
    second_prompt = next_turn(FIRST, first, 7)
    second = server.serve(second_prompt)
    third_prompt = next_turn(second_prompt, second, 8)
    third = server.serve(third_prompt)

    edited = server.serve(next_turn(FIRST, first, 9))
    back = server.serve(next_turn(third_prompt, third, 2))

    assert edited.action == "fork"
    assert edited.plan.cached_tokens == len(FIRST) + len(first.ids) - 1
    assert back.action == "restore"
    assert back.plan.cached_tokens == len(third_prompt) + len(third.ids) - 1


def test_an_edit_in_the_last_turn_of_another_session_is_a_fork():
    """The client says that it is not the same conversation: its tail is not cut off."""
    server = Server()
    first = server.serve(FIRST, hint="parent")
    second = next_turn(FIRST, first, 7)
    server.serve(second, hint="parent")
    other = (*FIRST, *first.ids, *said(8))
    assert server.serve(other, hint="child").action == "fork"


def test_the_same_edit_without_a_hint_truncates():
    """Content is all that there is."""
    server = Server()
    first = server.serve(FIRST)
    server.serve(next_turn(FIRST, first, 7))
    assert server.serve(next_turn(FIRST, first, 8)).action == "truncate"


def test_children_of_one_parent_do_not_cost_it_its_state():
    """Six branches, and the parent goes on from its end (P11)."""
    server = Server()
    first = server.serve(FIRST, hint="p")
    end = next_turn(FIRST, first, 7)
    parent = server.serve(end, hint="p")
    for child in range(6):
        forked = server.serve((*end, *parent.ids, *said(20 + child)), hint=f"c{child}")
        assert forked.plan.cached_tokens == len(end) + len(parent.ids) - 1
    back = server.serve(next_turn(end, parent, 8), hint="p")
    assert back.plan.cached_tokens == len(end) + len(parent.ids) - 1


def test_nothing_crosses_a_namespace():
    """Not the live state, no capsule (G10)."""
    server = Server()
    first = server.serve(FIRST, namespace="a")
    other = server.serve(next_turn(FIRST, first, 7), namespace="b")
    assert (other.action, other.plan.cached_tokens) == ("rebuild", 0)


def test_a_restore_that_would_be_slower_is_not_made():
    """The first token decides, not the number of cached ones."""
    server = Server()
    server.serve(FIRST)
    server.serve(said(9))
    server.policy.costs.restore_mib_ms = 1e9
    assert server.serve(FIRST).action == "rebuild"


def test_without_a_budget_there_is_only_the_live_state():
    """Append works, nothing else is kept."""
    server = Server(budget=0)
    first = server.serve(FIRST)
    assert server.serve(next_turn(FIRST, first, 7)).action == "append"
    assert server.serve(said(9)).action == "rebuild"
    assert server.serve(next_turn(FIRST, first, 7)).action == "rebuild"
    assert server.policy.store.footprint() == 0


def test_a_plan_changes_nothing():
    """Asked twice, it says the same."""
    server = Server()
    first = server.serve(FIRST)
    server.serve(said(9))
    prompt = Prompt.from_ids(next_turn(FIRST, first, 7))
    store = server.policy.store
    before = store.report(), store.entries(), len(server.policy.sessions)
    plans = [server.policy.plan(prompt, salt="a") for _ in range(2)]
    assert plans[0].entry is plans[1].entry is not None
    assert (store.report(), store.entries(), len(server.policy.sessions)) == before


def test_what_an_idle_conversation_has_left_is_let_go():
    """Its states and the live one; what is pinned stays, and so do the others'."""
    server = Server(idle_ttl_s=100)
    opening_ = opening(*range(1, 9)) + said(9)
    server.serve(opening_, hint="idle", pin=True)
    server.now = 50.0
    other = said(20, 21, 22)
    kept = server.serve(other, hint="other")
    server.now = 120.0
    again = server.serve((*other, *kept.ids, *said(23)), 2)
    assert again.action == "append"
    assert all(entry.pinned for entry in server.policy.store.of_session("s1"))
    server.now = 1000.0
    late = server.serve((*other, *kept.ids, *said(23)), 2)
    assert late.action == "rebuild"
    assert late.plan.cached_tokens == 0


def test_a_shallow_state_at_hand_may_be_sooner_than_a_deep_one_on_disk():
    """Each tier has its own rate; the plan takes whatever gives the first token soonest."""
    server = Server(host=10**9)
    server.serve(opening(1, 2) + said(*range(10, 40)))
    server.serve(said(41, 42))
    prompt = opening(1, 2) + said(*range(10, 40)) + said(9)
    deep = server.policy.plan(Prompt.from_ids(prompt), salt="a").entry
    shallow = server.policy.store.path("a", Prompt.from_ids(prompt).packed)[-1]
    assert deep.position > shallow.position
    deep.first_to_go = True
    assert server.policy.store.evict_lru() is deep
    assert server.policy.plan(Prompt.from_ids(prompt), salt="a").entry is deep
    server.policy.costs.host_mib_ms = 10.0**9
    entry = server.policy.plan(Prompt.from_ids(prompt), salt="a").entry
    assert entry.tier is Tier.DEVICE
    assert entry.position < deep.position
