"""Every client of docs/clients.md does its errand with the page's own files and commands."""

from itertools import pairwise

import pytest

from tests.external.errand import CHATTED, DONE, ErrandEngine, turns_in
from tests.external.runner import Place
from tests.external.snippets import CLIENTS
from tests.scripted import SUBMIT
from tests.whole.server import VOICE, running_server

WITHIN_S = 120

WITHOUT_TOOLS = ("aider",)
"""Programs that offer no tools: they are told at once what README.md says."""

LAST_WORDS = {"mini": SUBMIT}
"""What is printed at the end, where it is not what the model says: mini ends with a command."""


@pytest.mark.external
@pytest.mark.parametrize("title", CLIENTS)
async def test_a_client_does_its_errand_as_the_page_sets_it_up(title, tmp_path):
    """It runs both tools and says what they gave; no later turn reads the history again."""
    engine = ErrandEngine(VOICE.tokenizer)
    log = tmp_path / "requests.jsonl"
    async with running_server(engine, within_s=WITHIN_S, request_log=log) as server:
        ran = await Place(tmp_path).run(CLIENTS[title].filled(server.url))

    turns = turns_in(log)
    told = "\n".join([ran.printed[-3000:], *map(str, turns)])
    assert (ran.status, {turn.ending for turn in turns}) == (0, {"DONE"}), told
    if CLIENTS[title].run.language != "sh" or CLIENTS[title].program in WITHOUT_TOOLS:
        assert CHATTED in ran.printed, told
        return
    assert LAST_WORDS.get(CLIENTS[title].program, DONE) in ran.printed, told
    last = next(prompt for prompt in reversed(engine.prompts) if "<tools>" in prompt)
    assert "A tiny repo used for a test" in last.partition("<tool_response>")[2], told
    with_tools = [turn for turn, p in zip(turns, engine.prompts, strict=True) if "<tools>" in p]
    assert len(with_tools) >= 3, told
    for before, turn in pairwise(with_tools):
        assert turn.cached_tokens >= before.prompt_tokens, told
