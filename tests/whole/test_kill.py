"""`kill -9` at random moments under load: what is found afterwards is whole, and goes on."""

import json
import random
import shutil
import signal
import threading

import httpx
import pytest

from flashrt.disk import CapsuleDirectory
from tests.whole.talk import Answer, PathRun, demo_engine, words
from tests.whole.test_process import process

TALKS = 3
FLAGS = ("--port", "0", "--max-seq", "2048", "--chunk-tokens", "128", "--threads", "1")


class Load:
    """Clients of one server, each in its conversation, until the server is gone."""

    def __init__(self, url, talks):
        self.url, self.talks = url, talks
        self.answers = []
        self.gone = threading.Event()
        self.answered = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(talk,)) for talk in talks]
        for thread in self.threads:
            thread.start()

    def _run(self, talk):
        while not self.gone.is_set():
            try:
                self.answers.append(ask(self.url, talk, f"question {len(talk)}"))
            except (httpx.HTTPError, KeyError):
                return
            self.answered.set()

    def end(self):
        self.gone.set()
        for thread in self.threads:
            thread.join(60)


def ask(url, talk, text):
    """One more turn; the talk grows when the answer is whole."""
    messages = [*talk, {"role": "user", "content": text}]
    body = {
        "model": "any",
        "messages": messages,
        "max_tokens": 6,
        "temperature": 0,
        "flashrt_return_token_ids": True,
    }
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    answer = Answer(reply.json())
    talk[:] = [*messages, answer.message]
    return answer


def begun():
    return [[{"role": "system", "content": words(40, f"s{i}")}] for i in range(TALKS)]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, 50])
def test_only_whole_capsules_are_found_and_the_next_turns_meet_their_oracle(tmp_path, kills):
    """About six seconds a kill. The directory stays within its budget, whatever was cut off."""
    rng, oracle = random.Random(kills), PathRun(demo_engine("float32", 2048))
    directory, talks, restored = tmp_path / "capsules", begun(), 0
    flags = (*FLAGS, "--disk-capsule-dir", str(directory), "--disk-capsule-budget-mb", "24")
    for number in range(kills):
        if number % 8 == 7:
            talks = begun()
        with process(*flags) as (child, url):
            checked = [ask(url, talk, "and now?") for talk in talks]
            held = httpx.get(f"{url}/health").json()["capsules"]
            load = Load(url, talks)
            load.answered.wait(60)
            threading.Event().wait(rng.random())  # the moment is what is tried
            child.send_signal(signal.SIGKILL)
            child.wait(60)
            load.end()
        restored += sum(answer.action == "restore" for answer in checked)
        oracle.meets(*checked, *load.answers[-1:])
        assert held["damaged"] == 0
        whole = list(CapsuleDirectory(directory, identity_of(directory), None).filed())
        size = sum(file.stat().st_size for file in directory.iterdir())
        assert whole
        assert size <= 24 << 20
    assert restored >= (kills - 1) * TALKS // 2
    shutil.rmtree(directory)


def identity_of(directory):
    """Of the only engine that has written there."""
    manifest = next(directory.glob("capsule-*.json"))
    return json.loads(manifest.read_text())["capsule"]["identity"]
