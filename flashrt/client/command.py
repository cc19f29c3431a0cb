"""A shell command, bounded in time and in what is kept of its output."""

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SECONDS_MAX = 60.0
READ_BYTES = 1 << 16


def run_command(command: str, *, bytes_max: int, seconds_max: float = SECONDS_MAX) -> str:
    """How it ended, and behind that the first `bytes_max` of what it printed. Raises ValueError.

    Everything that it started ends with it, also on Ctrl-C: nothing goes on unseen. It has no
    input, so it cannot take what is typed for the chat.
    """
    deadline = time.monotonic() + seconds_max
    child = None
    try:
        with _ctrl_c_later():
            child = _start(command)
        printed = _printed(child, bytes_max, deadline)
        ending = f"exit status {child.wait(_left_s(deadline))}"
    except subprocess.TimeoutExpired:
        ending = f"ended after {seconds_max:g} s"
    finally:
        if child is not None:
            with child:
                _end_group(child)
    return f"{ending}\n{printed.decode(errors='replace')}"


def _start(command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Ctrl-C in the block is taken at its end: a process must not start without a name to end it.

    Only the main thread is interrupted at all.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    for number in came:
        signal.raise_signal(number)


def _printed(child: subprocess.Popen[bytes], bytes_max: int, deadline: float) -> bytes:
    """The beginning of the output, up to its end or the deadline. The rest is read and let go."""
    assert child.stdout is not None, "the output is a pipe"
    kept = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while (left := _left_s(deadline)) and selector.select(left):
            read = os.read(child.stdout.fileno(), READ_BYTES)
            if not read:
                break
            kept += read[: bytes_max - len(kept)]
    return bytes(kept)


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """The child leads a group of its own, which may be empty by now."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
