"""The server as a process: start, stop, kill and restart, as a person or a supervisor does it."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import torch
import trio

from flashrt.serve import run
from flashrt.settings import load
from tests.whole.server import ENDLESS, running_server
from tests.whole.talk import NARROW, demo_engine

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


def test_keys_and_values_are_kept_as_the_setting_says(monkeypatch, capsys):
    """Up to the loop: memory is counted, and the engine made, with the words of the setting."""
    served = []
    monkeypatch.setattr(trio, "run", lambda body: served.append(body.args[2]) or 0)
    for name in ("sys.setswitchinterval", "flashrt.serve.settle"):  # these outlive a test
        monkeypatch.setattr(name, lambda *_: None)
    told, threads = [], str(torch.get_num_threads())
    for word in ("auto", "fp8"):
        flags = {"device": "cpu", "max_seq": "8192", "threads": threads, "kv_cache_dtype": word}
        settings = load(flags, environ={})
        assert run(settings) == 0
        told.append(float(re.search(r"([\d.]+) for the state", capsys.readouterr().out)[1]))
    assert [engine.info.kv_dtype for engine in served] == ["float32", "float8_e4m3fn"]
    assert told[1] < 0.6 * told[0]


async def test_the_start_says_in_what_keys_and_values_are_kept(capsys):
    """Where that is another format than the model's."""
    said = []
    for dtype in (NARROW, "float32"):
        async with running_server(demo_engine(dtype, 512)):
            said.append(capsys.readouterr().out)
    assert "(float32 on cpu, keys and values in float8_e4m3fn)" in said[0]
    assert "(float32 on cpu)" in said[1]
