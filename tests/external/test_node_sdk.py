"""The official Node packages of both vendors: they need Node and npm, and pip cannot install them.

`npm install --prefix FOLDER openai @anthropic-ai/sdk` puts them there, and
FLASHRT_TEST_NODE_MODULES=FOLDER names it.
"""

import json
import os
import shutil
from pathlib import Path

import attrs
import pytest
import trio

from flashrt.demo import DEMO_PATH
from flashrt.engine.hybrid import HybridEngine
from tests.external.errand import turns_in
from tests.scripted import ScriptedEngine, spoken
from tests.whole.server import VOICE, running_server

CALLED = [["bash", {"command": "echo hi"}], ["read_file", {"path": "README.md"}]]
COUNTED = "one, two, three, many, " * 4000
"""So long that a client has always left before the end."""


class CountingEngine(ScriptedEngine):
    """Counts, if it is asked to, for a long time."""

    def says(self, prompt: str) -> str:
        """The numbers, or the script."""
        return spoken(prompt, COUNTED) if "Count." in prompt else super().says(prompt)


@attrs.frozen
class Sdk:
    """A folder with the packages."""

    folder: Path

    async def run(self, script: str, url: str, *trials: str) -> dict:
        """What came of each trial of a script."""
        environment = {**os.environ, "BASE_URL": url, "SDK": str(self.folder)}
        done = await trio.run_process(
            ["node", str(Path(__file__).with_name(script))],
            env={**environment, "TRIALS": " ".join(trials)},
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def sdk() -> Sdk:
    """The packages; in CI missing ones are a failure, elsewhere a skip."""
    named = os.environ.get("FLASHRT_TEST_NODE_MODULES", "")
    folder = Path(named)
    packages = [folder / "node_modules" / name for name in ("openai", "@anthropic-ai/sdk")]
    if named and shutil.which("node") and all(package.is_dir() for package in packages):
        return Sdk(folder)
    missing = "node, openai, or @anthropic-ai/sdk in FLASHRT_TEST_NODE_MODULES"
    if os.environ.get("CI"):
        pytest.fail(f"CI must install it first: {missing}")
    pytest.skip(f"missing here: {missing}")


def demo_engine() -> HybridEngine:
    """The demo model, which has no sense of its own."""
    return HybridEngine.load(
        DEMO_PATH, max_seq=2048, sampleable=VOICE.tokenizer.vocab_size, progress=False
    )


async def seen_by(sdk: Sdk, script: str, log: Path, *trials: str) -> dict:
    """The trials over the scripted engine, the last one being `cancel`: the record says so too."""
    engine = CountingEngine(VOICE.tokenizer)
    async with running_server(engine, request_log=log) as server:
        seen = await sdk.run(script, server.url, *trials, "cancel")
    assert [turn.ending for turn in turns_in(log)][-2:] == ["CANCELLED", "DONE"]
    return seen


@pytest.mark.external
async def test_chat_by_the_openai_package_loops_streams_fails_and_cancels(sdk, tmp_path):
    """A tool loop, equal streams and bodies, a typed error, and an abort that harms nobody."""
    trials = ("models", "toolLoop", "streamedIsBuffered", "error")
    seen = await seen_by(sdk, "openai_sdk.mjs", tmp_path / "log", *trials)

    assert seen["models"] == [60_000]
    assert seen["toolLoop"]["called"] == CALLED
    assert "hi" in seen["toolLoop"]["text"]
    assert seen["streamedIsBuffered"] == {
        "same": True,
        "reasons": ["tool_calls", "tool_calls"],
        "used": True,
    }
    assert seen["error"] == ["BadRequestError", 400, "invalid_request_error"]
    assert seen["cancel"] == "stop"


@pytest.mark.external
async def test_responses_by_the_openai_package_loop_stream_fail_and_cancel(sdk, tmp_path):
    """The same over Responses, with the model's own items sent back as they came."""
    trials = ("toolLoop", "streamedIsBuffered", "chained", "error")
    seen = await seen_by(sdk, "openai_responses.mjs", tmp_path / "log", *trials)

    assert seen["toolLoop"]["called"] == CALLED
    assert "hi" in seen["toolLoop"]["text"]
    assert seen["toolLoop"]["cached"] > 0
    assert seen["streamedIsBuffered"] == {
        "same": True,
        "statuses": ["completed", "completed"],
        "ends": ["response.created", "response.completed"],
        "used": True,
    }
    assert seen["chained"] == {"kept": True, "reused": True, "unknown": ["NotFoundError", 404]}
    assert seen["error"] == ["BadRequestError", 400, "invalid_request_error", "max_output_tokens"]
    assert seen["cancel"] == "completed"


@pytest.mark.external
async def test_messages_by_the_anthropic_package_loop_stream_fail_and_cancel(sdk, tmp_path):
    """The same over Messages, with token counts that are those of the answer."""
    trials = ("models", "toolLoop", "streamedIsBuffered", "countTokens", "error", "tooLong")
    seen = await seen_by(sdk, "anthropic_sdk.mjs", tmp_path / "log", *trials)

    assert len(seen["models"]) == 1
    assert seen["toolLoop"]["called"] == CALLED
    assert "hi" in seen["toolLoop"]["text"]
    first, *later = seen["toolLoop"]["cached"]
    assert first == 0 < min(later)
    assert seen["streamedIsBuffered"] == {
        "same": True,
        "reasons": ["tool_use", "tool_use"],
        "ends": ["message_start", "message_stop"],
        "used": True,
    }
    assert seen["countTokens"] == [True, True]
    assert seen["error"] == ["BadRequestError", 400, "invalid_request_error"]
    assert seen["tooLong"] == [400, "invalid_request_error", True]
    assert seen["cancel"] == "end_turn"


@pytest.mark.external
async def test_both_packages_tell_a_wrong_key_by_their_own_class(sdk, tmp_path):
    """The status is 401, and the class is the one for it."""
    (tmp_path / "keys").write_text("any\n")
    engine = ScriptedEngine(VOICE.tokenizer)
    async with running_server(engine, api_key_file=tmp_path / "keys") as server:
        openai = await sdk.run("openai_sdk.mjs", server.url, "wrongKey", "models")
        anthropic = await sdk.run("anthropic_sdk.mjs", server.url, "wrongKey", "models")

    assert openai == {"wrongKey": ["AuthenticationError", 401], "models": [60_000]}
    assert anthropic["wrongKey"] == ["AuthenticationError", 401, "authentication_error"]
    assert len(anthropic["models"]) == 1


@pytest.mark.external
async def test_each_package_gets_the_structure_that_it_asks_for(sdk):
    """From the demo model: a schema by each protocol, a named tool, logprobs, a refusal."""
    async with running_server(demo_engine()) as server:
        chat = await sdk.run(
            "openai_sdk.mjs", server.url, "schema", "namedTool", "logprobs", "refusal"
        )
        responses = await sdk.run("openai_responses.mjs", server.url, "schema")
        messages = await sdk.run("anthropic_sdk.mjs", server.url, "schema")
    for seen in (chat, responses, messages):
        assert seen["schema"]["paint"]["colour"] in ("red", "green")
        assert seen["schema"]["paint"]["coats"] in (1, 2)
    assert chat["schema"]["finish_reason"] == "stop"
    assert responses["schema"]["status"] == "completed"
    assert messages["schema"]["stop_reason"] == "end_turn"
    assert chat["namedTool"] == {"name": "say", "word": "string", "finish_reason": "tool_calls"}
    assert chat["logprobs"] == [True, [3, 3, 3, 3]]
    assert chat["refusal"] == [400, "response_format.json_schema.schema"]
