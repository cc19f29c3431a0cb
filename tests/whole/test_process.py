"""The server as a process: start, stop, kill and restart, as a person or a supervisor does it."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

from tests.whole.server import ENDLESS

BODY = {
    "model": "any",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 40,
    "temperature": 0,
    "stream": True,
    **ENDLESS,
}


@contextmanager
def process(*flags):
    """`flashrt serve` on the demo checkpoint; gives the process and its URL."""
    command = [sys.executable, "-m", "flashrt", "serve", "--max-seq", "1024", *flags]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLASHRT_")}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        lines = []
        for line in child.stdout:
            lines.append(line)
            if line.startswith("clients"):
                break
        said = "".join(lines)
        assert "flashrt-demo" in said, said + child.stderr.read()
        yield child, re.search(r"http://127\.0\.0\.1:\d+", said)[0]
    finally:
        child.kill()
        child.communicate()


def ask(url, **wish):
    """Open a streamed answer."""
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps({**BODY, **wish}).encode(),
        {"Content-Type": "application/json"},
    )
    return urllib.request.urlopen(request, timeout=60)


def test_sigterm_lets_a_running_answer_finish_and_exits_0():
    """The stream ends with its finish_reason and [DONE]; a supervisor sees a clean stop."""
    with process("--port", "0") as (child, url):
        with ask(url) as answer:
            first = answer.readline()
            child.send_signal(signal.SIGTERM)
            rest = answer.read().decode()
        assert first.startswith(b"data: ")
        assert '"finish_reason":"length"' in rest
        assert rest.rstrip().endswith("data: [DONE]")
        assert child.wait(timeout=60) == 0


def test_sigterm_cuts_off_what_is_not_over_in_the_grace_time_and_exits_0():
    """The stream ends with one error event that says why; nothing looks like a normal stop."""
    with process("--port", "0", "--graceful-timeout-s", "0") as (child, url):
        with ask(url, max_tokens=900) as answer:
            first = answer.readline()
            child.send_signal(signal.SIGTERM)
            rest = answer.read().decode()
        said = [json.loads(line[6:]) for line in rest.splitlines() if line.startswith("data: {")]
        assert first.startswith(b"data: ")
        assert said[-1]["error"]["code"] == "server_stopping"
        assert all("error" not in event for event in said[:-1])
        assert "[DONE]" not in rest
        assert child.wait(timeout=60) == 0


def test_after_a_kill_a_restart_on_the_same_port_answers_the_same():
    """Nothing of a killed server is in the way of the next one, and greedy text is the same."""

    def text(url):
        with ask(url) as answer:
            lines = [line for line in answer.read().decode().splitlines() if "delta" in line]
        return [json.loads(line[6:])["choices"][0]["delta"] for line in lines]

    with process("--port", "0") as (child, url):
        before = text(url)
        port = url.rpartition(":")[2]
        child.kill()
        child.wait(timeout=60)
        with process("--port", port) as (_, again):
            assert again == url
            assert text(again) == before
