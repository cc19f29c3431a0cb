"""Codex and Claude Code over the real server: nothing that they do beside a conversation costs it.

The engine is scripted, all else is real; the figures are those of the server's own request log.
"""

import json
import re
import shlex
from itertools import takewhile
from pathlib import Path

import attrs
import pytest

from flashrt.demo import DEMO_PATH
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import SamplingParams
from tests.external.errand import DONE, ErrandEngine, Turn, turns_in
from tests.external.runner import Place, command_of
from tests.external.snippets import CLIENTS, TASK, Section
from tests.external.tmux import screen
from tests.scripted import spoken, tools_on_offer
from tests.whole.server import VOICE, Server, running_server
from tests.whole.watch import health, until

WITHIN_S = 120
CHUNK_TOKENS = 1024
"""Between two cuts at which a long opening is saved."""

TEAM_TASK = "Ask three helpers at once."
HELPERS = ("Helper 1", "Helper 2", "Helper 3")
AGAIN = "And once more, please."
EVERYBODY = {"namespace_from": "api_key"}
"""Codex names a new cache key for each session."""


class TeamEngine(ErrandEngine):
    """Sends three helpers out where it is asked to, and has a title for whoever wants one."""

    def says(self, prompt: str) -> str:
        """The calls, the title, or the errand."""
        said = super().says(prompt)
        tools = tools_on_offer(prompt)
        if not tools:
            return spoken(prompt, json.dumps({"title": "An errand"}))
        if (
            TEAM_TASK in prompt
            and "<function=Agent>\n<parameter=description>\nan errand" not in prompt
        ):
            return spoken(prompt, "\n".join(map(call_of, HELPERS)))
        return said


def call_of(helper: str) -> str:
    """A call of Claude Code's tool for sub-agents, which waits for the result."""
    values = {
        "description": "an errand",
        "prompt": f"{helper}: run echo hi, read README.md, say what was printed.",
        "run_in_background": "false",
    }
    lines = [f"<parameter={name}>\n{value}\n</parameter>" for name, value in values.items()]
    return "\n".join(["<tool_call>\n<function=Agent>", *lines, "</function>\n</tool_call>"])


@attrs.frozen
class Story:
    """What a server was asked, in order: each prompt with its line of the log."""

    requests: list[tuple[str, Turn]]

    @classmethod
    def of(cls, engine: ErrandEngine, log: Path) -> "Story":
        """All of them were answered."""
        turns = turns_in(log)
        assert {turn.ending for turn in turns} == {"DONE"}, [*map(str, turns)]
        return cls(list(zip(engine.prompts, turns, strict=True)))

    def about(self, *words: str, but: str = "\0") -> list[Turn]:
        """The turns of a conversation: those with tools, with these words and without others."""
        wanted = ("<tools>", *words)
        return [
            turn for prompt, turn in self.requests
            if all(word in prompt for word in wanted) and but not in prompt
        ]  # fmt: skip

    def place(self, turn: Turn) -> int:
        """Where it stands among all."""
        return next(i for i, (_, other) in enumerate(self.requests) if other is turn)

    def __str__(self) -> str:
        return "\n".join(str(turn) for _, turn in self.requests)


def only_tails_are_new(turns: list[Turn]) -> bool:
    """Whether each turn found all that was processed up to the end of the answer before it."""
    ends = [turn.prompt_tokens + turn.fields["completion_tokens"] - 1 for turn in turns]
    return all(turn.cached_tokens >= end for end, turn in zip(ends, turns[1:], strict=False))


def finds_what_is_common(story: Story, one: int, other: int) -> bool:
    """Whether a later request found its beginning, but for a chunk, in that of an earlier one."""
    (before, _), (prompt, turn) = story.requests[one], story.requests[other]
    equal = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, prompt, strict=False))
    )
    common = len(VOICE.tokenizer.encode(prompt[:equal]))
    return turn.cached_tokens > common - CHUNK_TOKENS > 0.6 * turn.prompt_tokens


@pytest.mark.external
@pytest.mark.parametrize("title", ["Codex", "Claude Code"])
async def test_only_tails_are_new_and_a_second_session_finds_the_opening(title, tmp_path):
    """Turn by turn the new tokens are the tail; a new process starts behind what is common."""
    engine, log = ErrandEngine(VOICE.tokenizer), tmp_path / "requests.jsonl"
    place = Place(tmp_path)
    async with running_server(engine, within_s=WITHIN_S, request_log=log, **EVERYBODY) as server:
        first = await place.run(CLIENTS[title].filled(server.url))
        begun = len(engine.prompts)
        second = await place.run(CLIENTS[title].filled(server.url, task="What is in README.md?"))
    story = Story.of(engine, log)

    assert DONE in first.printed, first.printed
    assert DONE in second.printed, second.printed
    for turns in ([t for _, t in story.requests[:begun]], [t for _, t in story.requests[begun:]]):
        assert len(turns) == 3, str(story)
        assert only_tails_are_new(turns), str(story)
    assert story.requests[begun][1].action == "restore", str(story)
    assert finds_what_is_common(story, 0, begun), str(story)


@pytest.mark.external
async def test_codex_runs_a_command_with_the_demo_model(tmp_path):
    """The real engine all the way, greedy: the call is right, only its tail is read after it."""
    engine = HybridEngine.load(
        DEMO_PATH, max_seq=16_384, sampleable=VOICE.tokenizer.vocab_size, progress=False
    )
    greedy = attrs.evolve(VOICE, sampling_defaults=SamplingParams(temperature=0))
    log, task = (
        tmp_path / "requests.jsonl",
        "Run the shell command: echo hello. Then say what it printed.",
    )
    async with running_server(engine, voice=greedy, within_s=WITHIN_S, request_log=log) as server:
        ran = await Place(tmp_path).run(CLIENTS["Codex"].filled(server.url, task=task))
    turns = turns_in(log)

    told = "\n".join([ran.printed, *map(str, turns)])
    assert ran.status == 0, told
    assert re.search(r"echo hello' in .*\n succeeded in .*\nhello\n", ran.printed), told
    assert {turn.ending for turn in turns} == {"DONE"}, told
    assert len(turns) >= 2, told
    assert only_tails_are_new(turns), told


@pytest.mark.external
async def test_three_helpers_at_once_leave_the_main_conversation_its_prefix(tmp_path):
    """Claude Code's sub-agents run beside each other; all four conversations keep their own."""
    engine, log = TeamEngine(VOICE.tokenizer), tmp_path / "requests.jsonl"
    async with running_server(engine, within_s=WITHIN_S, request_log=log) as server:
        section = CLIENTS["Claude Code"].filled(server.url, task=TEAM_TASK)
        ran = await Place(tmp_path).run(section)
    story = Story.of(engine, log)

    assert DONE in ran.printed, ran.printed
    main = story.about(TEAM_TASK)
    helpers = [story.about(f"{helper}:", but=TEAM_TASK) for helper in HELPERS]
    assert len(main) == 2, str(story)
    assert [len(turns) for turns in helpers] == [3, 3, 3], str(story)
    for turns in (main, *helpers):
        assert only_tails_are_new(turns), str(story)
    places = [[story.place(turn) for turn in turns] for turns in helpers]
    assert any(a[0] < b[0] < a[-1] for a in places for b in places), "they did not run at once"
    first, *later = sorted(turns[0] for turns in places)
    assert all(finds_what_is_common(story, first, one) for one in later), str(story)


async def is_idle(server: Server) -> bool:
    """Whether nothing runs or waits."""
    said = await health(server)
    return said["running"] is None and said["queued"] == 0


def at_home(title: str, place: Place) -> None:
    """What a first start in a terminal asks for is answered before."""
    if title == "Codex":
        settings = place.home / ".codex" / "config.toml"
        trusted = f'\n[projects."{place.project}"]\ntrust_level = "trusted"\n'
        settings.write_text(f"check_for_update_on_startup = false\n{settings.read_text()}{trusted}")
        return
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    answers = {"hasCompletedOnboarding": True, "projects": {str(place.project): trusted}}
    (place.home / ".claude.json").write_text(json.dumps({**answers, "theme": "dark"}))


def interactive(section: Section, *flags: str) -> str:
    """The section's variables, and its program without a task."""
    exports = [line for line in section.run.text.splitlines() if line.startswith("export ")]
    kept = [line for line in exports if "NONESSENTIAL" not in line]  # a title counts among that
    quiet = [f"export DISABLE_{name}=1" for name in ("TELEMETRY", "ERROR_REPORTING", "AUTOUPDATER")]
    return "\n".join([*kept, *quiet, shlex.join([section.program, *flags])])


ARROW = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
UNASKED = "--dangerously-bypass-approvals-and-sandbox"
TERMINALS = {
    "Codex": ("Ask Codex to do anything", "--no-daemon", UNASKED),
    "Claude Code": (ARROW, "--allowedTools", "Bash,Read"),
}
"""What stands where one types, and the flags."""


@pytest.mark.external
@pytest.mark.parametrize("title", TERMINALS)
async def test_a_title_beside_it_costs_a_conversation_in_a_terminal_nothing(title, tmp_path):
    """Both ask for a title when a task is typed; later turns find the conversation as it was."""
    engine, log, place = TeamEngine(VOICE.tokenizer), tmp_path / "requests.jsonl", Place(tmp_path)
    sign, *flags = TERMINALS[title]
    async with running_server(engine, within_s=WITHIN_S, request_log=log, **EVERYBODY) as server:
        section = CLIENTS[title].filled(server.url)
        place.prepare(section)
        command_of(section, place.project)
        at_home(title, place)
        with screen(place, interactive(section, *flags)) as shown:
            await shown.until_shown(sign)
            await shown.enter(TASK)
            await shown.until_shown(DONE)
            await shown.enter(AGAIN)
            await until(lambda: sum(AGAIN in prompt for prompt in engine.prompts) == 3)
            await until(lambda: is_idle(server))
    story = Story.of(engine, log)

    main, later = story.about(TASK), story.about(TASK, AGAIN)
    assert (len(main), main[3:]) == (6, later), str(story)
    assert len(story.requests) > len(main), f"nobody asked for a title\n{story}"
    assert only_tails_are_new(main), str(story)
