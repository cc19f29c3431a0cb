"""Requests that the clients know of against those that the server counts."""

from hypothesis import given
from hypothesis import strategies as st

from flashrt.bench.soak.tally import Records, Tally

few = st.integers(0, 20)


@given(finished=few, left=few, refused=few, unknown=few, dice=st.randoms())
def test_whatever_became_of_the_unknown_ones_is_right(finished, left, refused, unknown, dice):
    """Each request of a client that left may have ended, been cancelled or refused, or not come."""
    fates = [dice.choice(["DONE", "CANCELLED", "REJECTED", None]) for _ in range(unknown)]
    fates += [dice.choice(["DONE", "CANCELLED"]) for _ in range(left)]
    fates += ["DONE"] * finished + ["REJECTED"] * refused
    records = Records(finished + left, finished, refused, unknown)
    counted = {state: fates.count(state) for state in ("DONE", "CANCELLED", "REJECTED")}
    assert records.wrong(counted) == []


@given(finished=few, left=few, refused=few, unknown=few)
def test_one_request_too_few_or_too_many_is_wrong(finished, left, refused, unknown):
    """A record that was never closed, one that was closed twice, and one of a failure."""
    records = Records(finished + left, finished, refused, unknown)
    least = {"DONE": finished, "CANCELLED": left, "REJECTED": refused}
    most = {**least, "CANCELLED": left + unknown}
    assert records.wrong(least) == records.wrong(most) == []
    for state in least:
        assert records.wrong({**least, state: least[state] - 1})
    assert records.wrong({**most, "CANCELLED": left + unknown + 1})
    assert records.wrong({**most, "ERROR": 1})


def test_a_tally_tells_actions_apart():
    """Times and answers by the name of the action."""
    tally = Tally()
    for status in (200, 200, 429, "left"):
        tally.saw("append", status)
    for ms in (1.0, 3.0):
        tally.took("append", ms)
    tally.took("probe", 5.0)
    append, probe = tally.report()
    assert append == {
        "action": "append",
        "times": 2,
        "median_ms": 2.0,
        "max_ms": 3.0,
        "answers": {"200": 2, "429": 1, "left": 1},
    }
    assert (probe["action"], probe["answers"], tally.finished) == ("probe", {}, 3)
