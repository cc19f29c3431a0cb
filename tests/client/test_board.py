"""The lines of `flashrt top`."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.client.board import NEEDS_A_KEY, WRONG_KEY, board
from flashrt.client.health import Activity, Finished, Health
from flashrt.client.screen import CYAN, RED
from tests.http.busy import busy_server


def read(answer: dict) -> Health:
    """As the client decodes it."""
    return msgspec.json.decode(msgspec.json.encode(answer), type=Health)


def lines(health: Health, *, has_key: bool = False) -> list[str]:
    return [line.text for line in board(health, has_key=has_key)]


def idle(**fields) -> Health:
    """A server that has just begun."""
    figures = {"max_model_len": 4096, "queued": 0, "capsules": {}, "totals": {}}
    return read({"status": "ready", "model": "m", "running": None, **figures, **fields})


async def test_a_busy_server_is_shown_line_by_line():
    """What /health really says: the running request, those that wait, the newest that are over."""
    async with busy_server() as busy:
        text = lines(read(await busy.health()))
        await busy.go_on()
        after = lines(read(await busy.health()))
    assert text[0] == "FlashRT  ready   fake, window 4,096 tokens"
    assert text[1].split(maxsplit=1) == ["requests", "2 waiting, 1 in prefill"]
    assert text[2].split() == ["hot", "session", "none"]
    head = next(number for number, line in enumerate(text) if line.startswith("now "))
    assert "128 of 132, 0 cached" in text[head + 1]
    assert [line.split()[1] for line in text[head + 1 : head + 4]] == [
        "prefill",
        "queued",
        "queued",
    ]
    assert text[-2].endswith("rebuild   message, in message 0 at byte 18")
    assert "20 tokens, in namespace" in after[2]
    assert "0 waiting, the engine is idle" in after[1]


def test_a_server_that_has_just_begun_has_no_figures_yet():
    """Dashes and words, no division by nothing."""
    text = lines(idle(activity=msgspec.to_builtins(NOTHING)))
    assert "first token   median -" in text
    assert "cached        - of all prompt tokens" in text
    assert text.count("none") == 2


NOTHING = Activity(0, [], None, {}, None, None, [])


@pytest.mark.parametrize(("has_key", "words"), [(False, NEEDS_A_KEY), (True, WRONG_KEY)])
def test_what_is_kept_from_us_is_said_with_the_way_out(has_key, words):
    """The totals are shown all the same."""
    text = lines(idle(), has_key=has_key)
    assert text[-1] == words
    assert any(line.startswith("saved states") for line in text)


@pytest.mark.parametrize(("status", "style"), [("ready", CYAN), ("faulted", RED)])
def test_a_state_that_serves_nobody_stands_out(status, style):
    """In the first line."""
    first = next(board(idle(status=status), has_key=False))
    assert (status in first.text, first.style) == (True, style)


FINISHED = st.builds(
    Finished,
    request_id=st.text("0123456789abcdef", min_size=32, max_size=32),
    terminal_state=st.sampled_from(["DONE", "CANCELLED", "ERROR", "REJECTED"]),
    error_kind=st.none() | st.just("queue_full"),
    ended_s=st.none() | st.floats(0, 1e6),
    prefix_action=st.none() | st.just("message_append"),
    miss=st.none() | st.just({"kind": "evicted"}) | st.just({"kind": "tools", "message": 0}),
    prompt_tokens=st.integers(0, 10**7),
    cached_tokens=st.integers(0, 10**7),
    completion_tokens=st.integers(0, 10**6),
    queued_ms=st.none() | st.floats(0, 1e8),
    first_delta_ms=st.none() | st.floats(0, 1e8),
    decode_tok_per_s=st.none() | st.floats(0, 1e5),
)


@given(st.lists(FINISHED, min_size=1, max_size=20))
def test_columns_stand_below_their_heads(recent):
    """However long the numbers are: every row has its cells where the head has its words."""
    health = idle(activity=msgspec.to_builtins(Activity(0, [], None, {}, None, None, recent)))
    head, *rows = lines(health)[-len(recent) - 1 :]
    begins, broken = head.index("begun by"), head.index("broken by")
    assert len(rows) == len(recent)
    for row, request in zip(rows, recent, strict=True):
        assert row[:8] == request.request_id[:8]
        assert row[begins:].startswith("message append" if request.prefix_action else "-")
        assert row[broken - 2 : broken] == "  "
        assert row[broken:].startswith(request.miss["kind"] if request.miss else "-")


def test_lower_tiers_are_shown_where_there_are_any():
    """What lies on the host and on disk, beside the engine's memory."""
    (plain,) = [line for line in lines(idle()) if line.startswith("saved states")]
    assert "host" not in plain
    assert "disk" not in plain
    capsules = {
        "host_count": 2,
        "host_bytes": 3 << 20,
        "host_budget_bytes": 1 << 30,
        "disk_count": 5,
        "disk_bytes": 9 << 20,
        "disk_budget_bytes": 1 << 33,
    }
    (full,) = [line for line in lines(idle(capsules=capsules)) if line.startswith("saved states")]
    assert "2 on the host (3" in full
    assert "5 on disk (9" in full
