"""The decision tables in `specs/`: their rows neither overlap nor leave a gap."""

import inspect
import itertools

import pytest

from tests.specs.markdown import DecisionSpec, read_folder

SPECS = [DecisionSpec.from_block(block) for block in read_folder() if block.kind == "decision"]
SITUATIONS = [
    pytest.param(spec, situation, id=f"{spec} {' '.join('ny'[fact] for fact in situation)}")
    for spec in SPECS
    for situation in itertools.product((False, True), repeat=len(spec.facts))
]


@pytest.mark.parametrize(("spec", "situation"), SITUATIONS)
def test_exactly_one_row_decides_every_situation(spec: DecisionSpec, situation: tuple[bool, ...]):
    """Whatever the facts are, one row speaks, and only one."""
    labels = [row.label for row in spec.deciding(situation)]

    assert len(labels) == 1, f"{dict(zip(spec.facts, situation, strict=True))}: {labels}"


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_decision_table_names_a_function(spec: DecisionSpec):
    """The marker leads to the code that decides."""
    assert inspect.isroutine(spec.block.target())


@pytest.mark.parametrize(("spec", "situation"), SITUATIONS)
def test_the_function_decides_as_written(spec: DecisionSpec, situation: tuple[bool, ...]):
    """A function whose parameters are the facts by name does what the deciding row says."""
    function = spec.block.target()
    names = [fact.replace(" ", "_").replace("`", "") for fact in spec.facts]
    if list(inspect.signature(function).parameters) != names:
        pytest.skip(f"{spec} takes more than facts: its own test builds situations from the rows")

    outcome = function(**dict(zip(names, situation, strict=True)))

    (row,) = spec.deciding(situation)
    assert outcome.name == row.outcome.strip("`")
