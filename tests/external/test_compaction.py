"""Coding clients compact on what this server says: on its refusal, and on its usage figures.

They are installed from elsewhere; tests/external/runner.py says how they are found and run.
"""

import json
from pathlib import Path

import attrs
import pytest

from tests.external.book import FINISHED, SUMMARY, TASK, BookEngine, Kind, Turn, printed_in
from tests.external.clients import CLIENTS, CODEX, Client
from tests.whole.server import VOICE, running_server

WITHIN_S = 120
WINDOW_TOKENS = 56_000
MANY_TOKENS = 131_072
"""A window in which a client believes until it is refused."""

CHAPTERS = 8
"""So many that every client is refused, and not more: pi and Cline compact once for what their user
has asked, and give up at the next refusal."""

BY_USAGE = (
    *((CLIENTS["pi"], 6), (CLIENTS["opencode"], 8), (CLIENTS["qwen-code"], 8), (CODEX, 12)),
)
"""Chapters until they compact by themselves. pi looks at the figures when it is done with a task,
and would be refused before that if the task were longer."""


@attrs.frozen
class Refused:
    """A request that was too long."""

    prompt_tokens: int


@attrs.frozen
class Story:
    """What a client asked, in order, and what it printed."""

    requests: list[Turn | Refused]
    printed: str

    def __str__(self) -> str:
        """One line a request, for whoever has to find out why it went wrong."""
        lines = [
            f"{one.kind.name if isinstance(one, Turn) else 'REFUSED'} {one.prompt_tokens}"
            for one in self.requests
        ]
        return "\n".join([*lines, self.printed[-2000:]])

    @property
    def first_refusal(self) -> int:
        """Its place among the requests."""
        return next(i for i, one in enumerate(self.requests) if isinstance(one, Refused))

    def turns(self, kind: Kind, start: int = 0, stop: int | None = None) -> list[Turn]:
        """Those of a kind that were served, between two places."""
        turns = [one for one in self.requests[start:stop] if isinstance(one, Turn)]
        return [turn for turn in turns if turn.kind is kind]


def requests_of(log: Path, engine: BookEngine) -> list[Turn | Refused]:
    """The log has them all in order, and the engine what was served of them."""
    turns = iter(engine.turns)
    requests: list[Turn | Refused] = []
    for line in map(json.loads, log.read_text().splitlines()):
        if line["error_kind"] == "prompt_too_long":
            requests.append(Refused(line["prompt_tokens"]))
        else:
            assert line["terminal_state"] == "DONE", line
            requests.append(next(turns))
    assert next(turns, None) is None
    return requests


async def story_of(
    client: Client, folder: Path, chapters: int, window_tokens: int, **flags: int
) -> Story:
    """The whole book with one client, which believes in this window."""
    engine = BookEngine(VOICE.tokenizer, chapters=chapters, max_seq=WINDOW_TOKENS)
    log = folder / "requests.jsonl"
    async with running_server(engine, within_s=WITHIN_S, request_log=log, **flags) as server:
        printed = await client.run(folder, server.url, window_tokens, TASK)
    story = Story(requests_of(log, engine), printed)
    assert FINISHED in story.turns(Kind.WORK)[-1].said, str(story)
    return story


@pytest.mark.external
@pytest.mark.parametrize("status", [413, 400])
@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_that_is_refused_compacts_and_goes_on_to_the_end(name, status, tmp_path):
    """Refused at its third request or later, it summarises or drops, and the task is finished."""
    client = CLIENTS[name]
    limits = {"max_prompt_tokens": client.prompt_tokens_max, "overflow_status": status}
    story = await story_of(client, tmp_path, CHAPTERS, MANY_TOKENS, **limits)

    first = story.first_refusal
    before, after = story.turns(Kind.WORK, stop=first), story.turns(Kind.WORK, first)[0]
    assert len(before) >= 2, str(story)
    assert after.prompt_tokens < story.requests[first].prompt_tokens, str(story)
    assert not printed_in(before[-1].prompt) <= printed_in(after.prompt), str(story)
    assert client.summarises == bool(story.turns(Kind.SUMMARY, first)), str(story)
    assert client.summarises == (SUMMARY in after.prompt), str(story)


@pytest.mark.external
@pytest.mark.parametrize(("client", "chapters"), BY_USAGE, ids=lambda of: getattr(of, "name", of))
async def test_a_client_that_knows_the_window_compacts_before_it_is_refused(
    client, chapters, tmp_path
):
    """It goes by the usage figures of the answers before."""
    story = await story_of(client, tmp_path, chapters, WINDOW_TOKENS)

    assert not any(isinstance(one, Refused) for one in story.requests), str(story)
    assert story.turns(Kind.SUMMARY), str(story)
