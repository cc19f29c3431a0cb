"""The line of figures."""

from flashrt.client.chunks import Block, PromptDetails, Usage
from flashrt.client.figures import figures


def test_new_is_what_was_not_cached():
    """Both add up to the prompt."""
    usage = Usage(100, 25, PromptDetails(90))

    assert figures(usage, Block(50.04), seconds=0.5) == (
        "100 prompt tokens (90 cached, 10 new), 25 answer tokens, 0.50 s, 50.0 tokens/s"
    )


def test_what_a_server_does_not_tell_is_left_out():
    """Others have no details and no rate."""
    assert figures(Usage(7, 2), Block(), seconds=1) == (
        "7 prompt tokens (0 cached, 7 new), 2 answer tokens, 1.00 s"
    )
