"""Time as the policy sees it: a function that it is given."""

from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since some moment; never goes back."""


def timeless() -> float:
    """A clock that stands still: nothing ever takes too long."""
    return 0.0
