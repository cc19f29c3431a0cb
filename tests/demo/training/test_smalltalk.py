"""Fixed answers are unambiguous."""

from flashrt.demo.training.smalltalk import TALK


def test_no_question_has_two_answers():
    """Each wording stands once."""
    asks = [ask for row, _ in TALK for ask in row.split("|")]
    assert len(asks) == len(set(asks))
