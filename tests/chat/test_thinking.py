"""Budgets close a think block gracefully, whatever is drafted."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.thinking import CLOSING, EFFORTS, Constrains, ThinkingBudget, Together, effort
from flashrt.errors import BadRequest
from tests.chat.transcript import answered
from tests.chat.vocabulary import THINK, description, ids, tokenizer

OPEN, CLOSE = 7, 8
CLOSING_IDS = (91, 92, CLOSE, 93)
WANTED = st.lists(st.sampled_from([1, 2, 3, OPEN, CLOSE, 91, 92]), min_size=1, max_size=40)


def budget(tokens: int, *, is_open: bool = True) -> ThinkingBudget:
    return ThinkingBudget(
        tokens, open_id=OPEN, close_id=CLOSE, closing=CLOSING_IDS, is_open=is_open
    )


def decoded(
    wanted: list[int], constraint: Constrains, drafts: list[list[int]] | None = None
) -> list[int]:
    """What an engine decodes that would say `wanted[i]` at place i, were it free.

    A step takes the drafted ids that are what it would have chosen, and one more.
    """
    out: list[int] = []
    accepted: list[int] = []
    plans = iter(drafts or [])
    while len(out) < len(wanted):
        draft = next(plans, [])
        rows = constraint(accepted, draft)
        assert len(rows) == len(draft) + 1
        accepted = []
        for i, row in enumerate(rows):
            at = len(out) + len(accepted)
            if at == len(wanted):
                break
            chosen = wanted[at] if row is None else int(row)
            accepted.append(chosen)
            if i == len(draft) or draft[i] != chosen:
                break
        out += accepted
    return out


def blocks(out: list[int], is_open: bool) -> list[list[int]]:
    """The ids of each think block, its close included."""
    found: list[list[int]] = [[]] if is_open else []
    for token in out:
        if is_open:
            found[-1].append(token)
            is_open = token != CLOSE
        elif token == OPEN:
            found.append([])
            is_open = True
    return found


@given(WANTED, st.integers(0, 6), st.booleans())
def test_every_block_ends_within_its_budget(wanted: list[int], tokens: int, is_open: bool):
    """By itself, or with the closing words from the budget on; each block has it anew."""
    out = decoded(wanted, budget(tokens, is_open=is_open))

    closing = list(CLOSING_IDS[: CLOSING_IDS.index(CLOSE) + 1])
    for block in blocks(out, is_open):
        forced = block[tokens:]
        assert forced == closing[: len(forced)]


@given(WANTED, st.integers(0, 6), st.booleans())
def test_outside_of_a_closing_nothing_is_changed(wanted: list[int], tokens: int, is_open: bool):
    """All ids are the model's own, but for whole closings and one that is not over."""
    out = decoded(wanted, budget(tokens, is_open=is_open))

    changed = [i for i, (said, want) in enumerate(zip(out, wanted, strict=True)) if said != want]
    assert all(out[i] in CLOSING_IDS for i in changed)
    if tokens >= len(wanted):
        assert changed == []


@given(
    WANTED,
    st.integers(0, 6),
    st.lists(st.lists(st.sampled_from([1, OPEN, CLOSE, *CLOSING_IDS]), max_size=5), max_size=12),
    st.booleans(),
)
def test_drafts_change_no_id(
    wanted: list[int], tokens: int, drafts: list[list[int]], guesses_well: bool
):
    """Whatever is drafted, right or wrong, inside and across a closing."""
    plain = decoded(wanted, budget(tokens))
    if guesses_well:
        drafts = [plain[i : i + 3] for i in range(0, len(plain), 4)]

    assert decoded(wanted, budget(tokens), drafts) == plain


def test_the_closing_comes_id_by_id():
    """Two ids are free, then each row has its one id, then the answer is free."""
    limit = budget(2)

    assert limit([], [1, 2, *CLOSING_IDS]) == [None, None, *CLOSING_IDS, None]
    assert limit([], []) == [None]
    assert limit([1, 2], [91]) == [91, 92]
    assert limit([91, 92], []) == [CLOSE]
    assert limit([CLOSE], []) == [93]
    assert limit([93], []) == [None]


@pytest.mark.parametrize("first", [[1, CLOSE], [1, 2, *CLOSING_IDS], [1, 2, 91, CLOSE]])
def test_every_block_has_the_whole_budget(first: list[int]):
    """Whether the one before closed by itself or was closed."""
    assert budget(2)(first, [1, OPEN, 1, 2]) == [None, None, None, None, CLOSING_IDS[0]]


def test_a_budget_of_nothing_closes_at_once():
    """The first row already."""
    assert budget(0)([], []) == [CLOSING_IDS[0]]
    assert budget(0, is_open=False)([], [OPEN]) == [None, CLOSING_IDS[0]]


def test_the_closing_reads_as_thinking_that_ends():
    """Through the real reader: thinking, then the answer proper, without a marker."""
    limit = ThinkingBudget.of(tokenizer(), 3, is_open=True)
    wanted = [*ids("a b c d e f g h" * 20), *ids("<|im_end|>")]

    out = decoded(wanted, limit)
    read, _ = answered(out, opens_thinking=True)

    assert read.thinking == tokenizer().decode(wanted[:3]) + CLOSING
    assert read.text
    assert not any(marker in read.text + read.thinking for marker in THINK)


def test_a_vocabulary_without_the_token_has_no_budget():
    """A limit that cannot be kept is refused, not ignored."""
    without = json.loads(json.dumps(description()))
    without["added_tokens"] = [t for t in without["added_tokens"] if t["content"] not in THINK]
    plain = type(tokenizer())(without, {})

    with pytest.raises(BadRequest, match="cannot be limited"):
        ThinkingBudget.of(plain, 5, is_open=True)


def test_more_effort_is_more_thinking():
    """From none at all to no limit."""
    limits = [EFFORTS[word].thinking_tokens for word in EFFORTS if word != "none"]

    assert limits[-1] is None
    finite = [limit for limit in limits if limit is not None]
    assert finite == sorted(set(finite))
    assert len(finite) == len(limits) - 1


@pytest.mark.parametrize(
    ("word", "thinks", "name"),
    [
        ("none", False, None),
        ("minimal", True, "low"),
        ("low", True, "low"),
        ("Medium", True, "medium"),
        ("high", True, "xhigh"),
        ("xhigh", True, "xhigh"),
    ],
)
def test_templates_are_given_words_that_they_know(word: str, thinks: bool, name: str | None):
    """The newest refuses all but three."""
    args = effort(word).template_args

    assert args["enable_thinking"] is thinks
    assert args.get("reasoning_effort") == name


def test_an_unknown_effort_is_refused():
    """With the words that there are."""
    with pytest.raises(BadRequest, match="minimal") as caught:
        effort("huge", "reasoning.effort")
    assert caught.value.param == "reasoning.effort"


def test_constraints_go_together():
    """The first that limits a row counts."""
    mask = np.ones(4, dtype=bool)

    both = Together(budget(1), lambda accepted, draft: [mask] * (len(draft) + 1))

    assert both([], [1, 91]) == [mask, 91, 92]
