"""Drafts as a client sees them: a field that asks, a block that tells, the same text."""

import pytest

from tests.whole.server import fake_engine, running_server


@pytest.mark.parametrize(("wish", "used"), [(None, "auto"), (0, 0), (2, 2), (63, 8)])
async def test_the_flashrt_block_says_what_was_drafted(wish, used):
    """The depth that was used, clipped to the server's; and what came of it, also in /health."""
    asked = {} if wish is None else {"flashrt_draft_tokens": wish}
    async with running_server(fake_engine(burst_max=9)) as server:
        block = (await server.chat(max_tokens=60, **asked))["flashrt"]
        totals = (await server.http.get("/health")).json()["totals"]

    assert block["draft_tokens"] == used
    assert (block["spec_attempts"] > 0) == (wish != 0)
    assert len(block["accepted_per_position"]) <= (8 if wish is None else wish)
    for name in ("decode_steps", "spec_attempts", "spec_accepts", "drafters"):
        assert totals[name] == block[name]


async def test_a_wish_for_drafts_changes_no_id():
    """Whatever is drafted, the text is the same."""
    async with running_server(fake_engine(burst_max=9)) as server:
        answers = [await server.chat(max_tokens=60, flashrt_draft_tokens=n) for n in (0, 1, 8)]

    ids = [answer["flashrt"]["completion_token_ids"] for answer in answers]
    assert ids[0] == ids[1] == ids[2]
    steps = [answer["flashrt"]["decode_steps"] for answer in answers]
    assert steps[0] == len(ids[0]) > steps[1] > steps[2]


@pytest.mark.parametrize("wish", [-1, 64, "3", True])
async def test_a_wish_that_no_server_can_grant_is_refused_by_name(wish):
    """400 with the field and its range."""
    body = {"messages": [{"role": "user", "content": "a"}], "flashrt_draft_tokens": wish}
    async with running_server(fake_engine()) as server:
        answer = await server.http.post("/v1/chat/completions", json=body)

    assert answer.status_code == 400
    assert "flashrt_draft_tokens" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("burst_max", "line"), [(1, "drafts    none"), (9, "drafts    fake")])
async def test_the_start_lines_name_the_drafters(burst_max, line, capsys):
    """Whether drafts are on is seen at start."""
    async with running_server(fake_engine(burst_max=burst_max)):
        pass

    assert line in capsys.readouterr().out.splitlines()
