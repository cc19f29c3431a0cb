"""JSON schemas that mean nothing: references that lead back to themselves."""

from collections.abc import Iterator
from typing import Any

ASIDE = ("allOf", "anyOf", "oneOf")
"""Under these a schema has other schemas of the same value."""


def is_circular(schema: Any) -> bool:
    """Whether a reference leads back to itself with no part of a value in between.

    Recursion through properties or items is fine. Raises RecursionError for a nest too deep.
    """
    done: set[str] = set()
    return any("$ref" in node and _leads_back(schema, node, (), done) for node in _nodes(schema))


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in a schema, itself included."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _leads_back(root: Any, node: Any, passed: tuple[str, ...], done: set[str]) -> bool:
    """Whether `node` leads to one of the references `passed`, or to itself."""
    if not isinstance(node, dict):
        return False
    ref = node.get("$ref")
    if isinstance(ref, str):
        if ref in passed:
            return True
        if ref not in done and _leads_back(root, _target(root, ref), (*passed, ref), done):
            return True
        done.add(ref)
    beside = [node[key] for key in ASIDE if isinstance(node.get(key), list)]
    return any(_leads_back(root, one, passed, done) for some in beside for one in some)


def _target(root: Any, ref: str) -> Any:
    """What a reference inside the schema names (a JSON pointer); None for any other."""
    if ref in ("", "#"):
        return root
    if not ref.startswith("#/"):
        return None
    node = root
    for part in ref.removeprefix("#/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            # By comparing, since Python refuses to read a number of thousands of digits.
            node = next((one for i, one in enumerate(node) if str(i) == name), None)
        else:
            node = node.get(name) if isinstance(node, dict) else None
    return node
