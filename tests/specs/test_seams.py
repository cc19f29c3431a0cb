"""The seams in `specs/seams.md` and the classes have the same names and signatures."""

import inspect
import re

import attrs
import pytest

from flashrt.policy.prefix import Action
from tests.specs.markdown import Block, expect_columns, read_folder

BLOCKS = [block for block in read_folder() if block.kind == "seam"]
ROWS = [
    pytest.param(block, name, is_, id=f"{label} {block.name}.{name}")
    for block in BLOCKS
    for label, name, is_, _ in block.rows
]


def returned(annotation: object) -> str:
    """The type that comes back: its own name, without `| None`."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.removesuffix(" | None").rpartition(".")[2]


def signature(function: object) -> str:
    """Names of parameters, `*` in front of those that must be named, and what comes back."""
    found = inspect.signature(function)
    names = []
    for parameter in found.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in names:
            names.append("*")
        names.append(parameter.name)
    return f"({', '.join(names[1:])}) -> {returned(found.return_annotation)}"


def described(owner: type, name: str) -> str:
    """How a member of a class would be written in the page."""
    if attrs.has(owner) and name in attrs.fields_dict(owner):
        return "field"
    member = inspect.getattr_static(owner, name)
    if isinstance(member, property):
        return f"-> {returned(inspect.signature(member.fget).return_annotation)}"
    return signature(member)


def test_the_page_has_the_classes_of_every_seam():
    """None gets lost when a class is renamed."""
    assert [block.name for block in BLOCKS] == [
        *("WorkItem", "EngineWorker", "CancelToken"),
        *("CapsuleStore", "AutoPrefixPolicy"),
        "Limits",
    ]
    for block in BLOCKS:
        expect_columns(block, ("row", "name", "is", "because"))


@pytest.mark.parametrize(("block", "name", "is_"), ROWS)
def test_the_class_has_the_member_as_written(block: Block, name: str, is_: str):
    """Name, parameters, and what comes back."""
    assert described(block.target(), name) == is_


def test_a_difference_would_show():
    """Another order, another kind of parameter or another type is another signature."""

    class Plain:
        def take(self, one: int, *, two: int) -> int | None: ...
        @property
        def done(self) -> bool: ...

    assert described(Plain, "take") == "(one, *, two) -> int"
    assert described(Plain, "done") == "-> bool"


def test_the_actions_of_a_plan_are_the_designs():
    """Seven words, in the `flashrt` block and in the series."""
    decision = next(block for block in read_folder() if block.name == "choose_action")
    outcomes = {re.sub("`", "", row[-2]) for row in decision.rows}
    assert {action.name for action in Action} == outcomes
    assert len(outcomes) == 7
