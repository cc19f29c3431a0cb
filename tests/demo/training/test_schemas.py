"""Dressed tools are the same functions."""

import random

from flashrt.demo.training.dialogue import function, name_of
from flashrt.demo.training.schemas import Dress, decoy


def test_dress_changes_no_name_and_takes_no_parameter_away():
    """Required stays required, and what is added is optional."""
    tool = function("f", "Does it", {"a": {"type": "string", "description": "A"}}, ["a"])
    for seed in range(50):
        dressed = Dress(random.Random(seed)).put_on(tool)["function"]
        assert (dressed["name"], dressed["description"]) == ("f", "Does it")
        assert dressed["parameters"]["required"] == ["a"]
        assert dressed["parameters"]["properties"]["a"] == {"type": "string", "description": "A"}


def test_decoys_require_only_what_they_have():
    """Whatever their shape."""
    for seed in range(50):
        tool = decoy(random.Random(seed))
        parameters = tool["function"]["parameters"]
        assert set(parameters["required"]) <= set(parameters["properties"])
        assert "|" not in name_of(tool)
