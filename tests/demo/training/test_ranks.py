"""Several processes train what one trains."""

import os
import socket
import subprocess
import sys

import pytest
import torch

from flashrt.demo.training.train import Trainer, parse

ARGS = "--size micro --total-steps 3 --workers 0 --batch-tokens 512 --longest 256"


COUNT = 2


def _together(out):
    """A run by several processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "flashrt.demo.training.train", *ARGS.split()]
    shared = {"WORLD_SIZE": str(COUNT), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    running = [
        subprocess.Popen(
            [*command, "--out", str(out)],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(COUNT)
    ]
    assert [process.wait(120) for process in running] == [0] * COUNT


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(tmp_path):
    """Each reads half of the rows; weights and counts are the same."""
    Trainer(parse([*ARGS.split(), "--out", str(tmp_path / "one")])).run()
    _together(tmp_path / "two")
    one, two = (
        torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("one", "two")
    )
    assert (one["step"], one["tokens"]) == (two["step"], two["tokens"]) == (3, 3 * 512)
    for name, tensor in one["net"].items():
        torch.testing.assert_close(two["net"][name], tensor, rtol=1e-4, atol=1e-6, msg=name)
