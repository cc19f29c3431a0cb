"""Shell commands and their bounds."""

import os
import select
import signal
import subprocess
import sys

import pytest

from flashrt.client import command as module
from flashrt.client.command import run_command
from tests.source import ROOT


def test_it_says_how_the_command_ended_and_what_it_printed():
    """Output and errors in their order, behind the exit status."""
    assert run_command("echo a; echo b >&2; exit 3", bytes_max=99) == "exit status 3\na\nb\n"


def test_only_the_beginning_of_the_output_is_kept():
    """The command is not disturbed by that: it runs to its own end."""
    ran = run_command("head -c 1000000 /dev/zero | tr '\\0' x; exit 4", bytes_max=5)

    assert ran == "exit status 4\nxxxxx"


@pytest.mark.parametrize("endless", ["yes", "sleep 1000", "exec >&- 2>&-; sleep 1000"])
def test_it_ends_at_its_time_limit(endless):
    """Also one that prints without end, is silent, or has closed its output."""
    assert run_command(endless, bytes_max=2, seconds_max=0.05).startswith("ended after 0.05 s\n")


def test_it_cannot_read_what_is_typed():
    """Its input is empty."""
    assert run_command("cat", bytes_max=99) == "exit status 0\n"


def interrupted(command: str, fifo) -> int:
    """Run a command in a process of its own; Ctrl-C once it has written a number: the number."""
    program = f"from flashrt.client.command import run_command as r; r({command!r}, bytes_max=9)"
    child = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL)
    with child:
        number = int(fifo.read_text())
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=20) != 0
    return number


def ends(process: int) -> bool:
    """Whether it is gone, or goes now. A kill takes a moment, which is waited for."""
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], 20)[0])
    finally:
        os.close(watched)


def test_ctrl_c_ends_the_command(tmp_path):
    """Nothing goes on behind the back of a person who cancelled."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    assert ends(interrupted(f"echo $$ >{fifo}; sleep 1000", fifo))


def test_ctrl_c_while_it_starts_ends_it_too(monkeypatch):
    """However early: there is no moment at which a process runs that nothing would end."""
    started = []

    def start(command):
        started.append(real(command))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    real = module._start
    monkeypatch.setattr(module, "_start", start)
    with pytest.raises(KeyboardInterrupt):
        run_command("sleep 1000", bytes_max=9)
    assert started[0].wait(20) == -signal.SIGKILL


def test_what_it_left_behind_ends_with_it():
    """A server that a model starts does not outlive the call."""
    ran = run_command("sleep 1000 >/dev/null 2>&1 & echo $!", bytes_max=99)

    assert ends(int(ran.splitlines()[1]))
