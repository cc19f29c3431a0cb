"""What a figure was measured on."""

import json

import torch

from flashrt.bench.engine.machine import Clock, facts, version


def test_facts_name_machine_and_versions():
    """All of it goes into JSON; what is not installed is null."""
    found = facts(torch.device("cpu"), torch.bfloat16)

    assert json.loads(json.dumps(found)) == found
    assert found["torch"] == torch.__version__
    assert found["dtype"] == "bfloat16"
    assert "CPU" in found["device"]
    assert version("no-such-library") is None


def test_the_clock_goes_forward():
    """In seconds."""
    clock = Clock(torch.device("cpu"))

    assert clock.now() < clock.on_host() < clock.now()
