"""The official openai package for Node: needs Node and the package, which pip cannot install.

`npm install --prefix FOLDER openai` puts it there; FLASHRT_TEST_NODE_MODULES=FOLDER names it.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import trio

from flashrt.demo import DEMO_PATH
from flashrt.engine.hybrid import HybridEngine
from tests.scripted import ScriptedEngine
from tests.whole.server import VOICE, running_server

SCRIPT = Path(__file__).with_name("openai_sdk.mjs")


@pytest.fixture
def sdk() -> str:
    """The folder with the package; in CI a missing one is a failure, elsewhere a skip."""
    folder = os.environ.get("FLASHRT_TEST_NODE_MODULES", "")
    if shutil.which("node") and (Path(folder) / "node_modules" / "openai").is_dir():
        return folder
    missing = "node, or openai in FLASHRT_TEST_NODE_MODULES"
    if os.environ.get("CI"):
        pytest.fail(f"CI must install it first: {missing}")
    pytest.skip(f"missing here: {missing}")


def run_script(url: str, sdk: str, *trials: str) -> dict:
    """What came of each trial."""
    environment = {**os.environ, "BASE_URL": url, "SDK": sdk, "TRIALS": " ".join(trials)}
    done = subprocess.run(
        ["node", str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.external
async def test_the_node_package_loops_streams_fails_and_cancels(sdk):
    """A tool loop, equal streams and bodies, a typed error, and an abort that harms nobody."""
    async with running_server(ScriptedEngine(VOICE.tokenizer)) as server:
        seen = await trio.to_thread.run_sync(
            run_script,
            server.url,
            sdk,
            *("models", "toolLoop", "streamedIsBuffered", "error", "cancel"),
        )
    assert seen["models"] == [60_000]
    assert seen["toolLoop"]["called"] == [
        ["bash", {"command": "echo hi"}],
        ["read_file", {"path": "README.md"}],
    ]
    assert "hi" in seen["toolLoop"]["text"]
    assert seen["streamedIsBuffered"] == {
        "same": True,
        "reasons": ["tool_calls", "tool_calls"],
        "used": True,
    }
    assert seen["error"] == ["BadRequestError", 400, "invalid_request_error"]
    assert seen["cancel"] == "stop"


@pytest.mark.external
async def test_the_node_package_gets_the_structure_it_asks_for(sdk):
    """From the demo model, which has no sense of its own: a schema, a named tool, a refusal."""
    engine = HybridEngine.load(
        DEMO_PATH, max_seq=2048, sampleable=VOICE.tokenizer.vocab_size, progress=False
    )
    trials = ("schema", "namedTool", "logprobs", "refusal")
    async with running_server(engine) as server:
        seen = await trio.to_thread.run_sync(run_script, server.url, sdk, *trials)
    assert seen["schema"]["paint"]["colour"] in ("red", "green")
    assert seen["schema"]["paint"]["coats"] in (1, 2)
    assert seen["schema"]["finish_reason"] == "stop"
    assert seen["namedTool"] == {"name": "say", "word": "string", "finish_reason": "tool_calls"}
    assert seen["logprobs"] == [True, [3, 3, 3, 3]]
    assert seen["refusal"] == [400, "response_format.json_schema.schema"]
