"""The shape of a tool."""

from flashrt.demo.training.dialogue import function, name_of


def test_a_tool_is_a_function_as_clients_offer_it():
    """Name, description and a schema of an object."""
    tool = function("f", "Does it", {"a": {"type": "string"}}, ["a"])
    assert name_of(tool) == "f"
    assert tool["type"] == "function"
    assert tool["function"]["parameters"]["required"] == ["a"]
