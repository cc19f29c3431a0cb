"""Admission at its borders."""

import attrs
import pytest

from flashrt.errors import PromptTooLong, QueueFull
from flashrt.policy.limits import Limits

LIMITS = Limits(max_seq=100, max_output_tokens=40, max_queue_depth=2, draft_tokens_max=8)


@pytest.mark.parametrize(
    ("prompt_tokens", "fits"), [(1, True), (99, True), (100, False), (101, False)]
)
def test_a_prompt_fits_if_one_token_of_answer_does(prompt_tokens, fits):
    """The border is window - 1, and the refusal says both numbers in words that clients know."""
    if fits:
        LIMITS.admit(prompt_tokens, queue_depth=0)
    else:
        with pytest.raises(PromptTooLong, match=rf"100 tokens.* {prompt_tokens} tokens") as refusal:
            LIMITS.admit(prompt_tokens, queue_depth=0)
        assert (refusal.value.status, refusal.value.code) == (413, "context_length_exceeded")


def test_a_full_queue_refuses():
    """The limit is how many may wait."""
    LIMITS.admit(1, queue_depth=1)
    with pytest.raises(QueueFull, match="2 requests are waiting"):
        LIMITS.admit(1, queue_depth=2)


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
