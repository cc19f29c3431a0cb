"""Admission at its borders."""

import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.errors import PromptTooLong, QueueFull
from flashrt.policy.limits import RETRY_AFTER_MAX_S, Limits, retry_after_s

LIMITS = Limits(
    max_seq=100, max_output_tokens=40, max_queue_depth=4, queue_per_client=2, draft_tokens_max=8
)


def admit(prompt_tokens=1, *, limits=LIMITS, waiting=0, mine=0, retry=3):
    """Ask."""
    limits.admit(prompt_tokens, waiting=waiting, waiting_of_client=mine, retry_after_s=retry)


@pytest.mark.parametrize(
    ("prompt_tokens", "fits"), [(1, True), (99, True), (100, False), (101, False)]
)
def test_a_prompt_fits_if_one_token_of_answer_does(prompt_tokens, fits):
    """The border is window - 1, and the refusal says both numbers in words that clients know."""
    if fits:
        admit(prompt_tokens)
    else:
        with pytest.raises(PromptTooLong, match=rf"100 tokens.* {prompt_tokens} tokens") as refusal:
            admit(prompt_tokens)
        assert (refusal.value.status, refusal.value.code) == (413, "context_length_exceeded")


@pytest.mark.parametrize(("prompt_tokens", "fits"), [(50, True), (51, False)])
def test_a_prompt_limit_below_the_window_counts(prompt_tokens, fits):
    """And it is the one that the refusal names."""
    limits = attrs.evolve(LIMITS, max_prompt_tokens=50)
    if fits:
        admit(prompt_tokens, limits=limits)
    else:
        with pytest.raises(PromptTooLong, match=r"is 50 tokens.* 51 tokens.*--max-prompt-tokens"):
            admit(prompt_tokens, limits=limits)


WORDS = {
    "pi, OpenCode": r"maximum context length is \d+ tokens",
    "Qwen Code": r"(?s)maximum context length is\s*\d+ tokens?.*?resulted in\s*\d+ tokens?",
    "Cline": r"\bcontext\s*length\b",
    "litellm (OpenHands)": "This model's maximum context length is",
    "gptme": "maximum context length",
}
"""What each looks for, told by docs/compaction.md; tests/external/test_compaction.py runs them."""

WORDS_OF_OTHER_REFUSALS = r"(?i)rate limit|too many requests|time(d )?out|per minute"
"""With these in it, the same clients take a refusal for one that passes by itself."""


@pytest.mark.parametrize("client", WORDS)
def test_a_refusal_has_the_words_by_which_a_client_compacts(client):
    """Whichever limit it names, and nothing that reads as a busy server."""
    for limits in (LIMITS, attrs.evolve(LIMITS, max_prompt_tokens=50)):
        with pytest.raises(PromptTooLong, match=WORDS[client]) as refusal:
            admit(1234, limits=limits)
        assert not re.search(WORDS_OF_OTHER_REFUSALS, refusal.value.message)


@pytest.mark.parametrize(
    ("waiting", "mine", "words"),
    [
        (3, 1, None),
        (4, 0, "4 requests are waiting.*--max-queue-depth"),
        (3, 2, "2 of your requests are waiting.*--queue-per-client"),
    ],
)
def test_a_full_queue_refuses_and_says_when_to_come_back(waiting, mine, words):
    """The whole queue first, then the places of one client."""
    if words is None:
        admit(waiting=waiting, mine=mine)
    else:
        with pytest.raises(QueueFull, match=words) as refusal:
            admit(waiting=waiting, mine=mine, retry=7)
        assert (refusal.value.status, refusal.value.retry_after_s) == (429, 7)


@pytest.mark.parametrize(
    ("prompt_tokens", "wish", "room"),
    [(10, None, 40), (10, 5, 5), (10, 500, 40), (90, None, 10), (90, 64000, 10), (99, None, 1)],
)
def test_the_answer_is_clipped_not_refused(prompt_tokens, wish, room):
    """max_tokens beyond the window or the server's limit becomes what fits."""
    assert LIMITS.output_tokens(prompt_tokens, wish) == room


@pytest.mark.parametrize(
    ("most", "wish", "used"),
    [(8, None, None), (8, 0, 0), (8, 3, 3), (8, 8, 8), (8, 63, 8), (0, None, 0), (0, 5, 0)],
)
def test_a_wish_for_drafts_is_clipped_not_refused(most, wish, used):
    """None leaves the depth to the engine; a server without drafts drafts nothing."""
    assert attrs.evolve(LIMITS, draft_tokens_max=most).draft_tokens(wish) == used


@given(st.lists(st.floats(0, 1e4)), st.floats(0, 1e4))
def test_the_time_to_come_back_is_a_whole_second_within_a_minute(served_s, running_s):
    """Whatever was measured."""
    assert 1 <= retry_after_s(served_s, running_s) <= RETRY_AFTER_MAX_S


@pytest.mark.parametrize(
    ("served_s", "running_s", "seconds"),
    [((), 0, 1), ((9, 5, 20), 0, 9), ((9, 5, 20), 4.5, 5), ((9, 5, 20), 30, 1), ((500,), 1, 60)],
)
def test_it_is_what_a_request_takes_less_what_the_running_one_has_had(served_s, running_s, seconds):
    """The median, so that one long answer does not count."""
    assert retry_after_s(served_s, running_s) == seconds
