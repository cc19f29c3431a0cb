"""The transition tables in `specs/` and in `flashrt.fsm` say the same, and machines obey them."""

import importlib
import itertools
import pkgutil
import re
from enum import Enum

import pytest

import flashrt.fsm
from flashrt.fsm.table import IllegalTransition, Table
from tests.specs.markdown import Row, TableSpec, read_folder

SPECS = [TableSpec.from_block(block) for block in read_folder() if block.kind == "table"]
ROWS = [pytest.param(spec, row, id=str(row)) for spec in SPECS for row in spec.rows]
PAIRS = [
    pytest.param(spec, state, event, id=f"{spec.table.name} {state.name} {event.name}")
    for spec in SPECS
    for state, event in itertools.product(spec.table.states, spec.table.events)
    if (state, event) not in spec.table.rows
]


def addresses_of(package: object, kind: type) -> list[str]:
    """`module:NAME` of every public instance of `kind` in the modules of a package."""
    found = []
    for module_info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(module_info.name)
        found += [
            f"{module.__name__}:{name}"
            for name, value in vars(module).items()
            if isinstance(value, kind) and not name.startswith("_")
        ]
    return found


def test_every_table_has_exactly_one_spec():
    """A new table needs a specification, and a deleted table takes its own along."""
    assert sorted(str(spec) for spec in SPECS) == sorted(addresses_of(flashrt.fsm, Table))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_spec_and_code_have_the_same_rows_in_the_same_order(spec: TableSpec):
    """No row is missing on either side, none says something else, and both read alike."""
    written = [(row.state, row.event, row.next) for row in spec.rows]
    coded = [(s.name, e.name, after.name) for (s, e), after in spec.table.rows.items()]

    assert set(written) - set(coded) == set(), "in the specification, not in the code"
    assert set(coded) - set(written) == set(), "in the code, not in the specification"
    assert written == coded


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_spec_and_code_have_the_same_terminal_states(spec: TableSpec):
    """The line under a table names the states in which its machine is over, and no other."""
    assert sorted(spec.block.terminal) == sorted(state.name for state in spec.table.terminal)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_tables_module_names_its_spec(spec: TableSpec):
    """Whoever opens the code is told where the reasons are."""
    module = importlib.import_module(spec.block.module)

    assert f"specs/{spec.block.file}" in module.__doc__


@pytest.mark.parametrize(("spec", "row"), ROWS)
def test_a_written_row_moves_a_machine(spec: TableSpec, row: Row):
    """A machine in the row's state goes to its next one, and is over where that is final."""
    machine = spec.machine_in(spec.state(row.state))

    after = machine.fire(spec.event(row.event))

    assert after.name == machine.state.name == row.next
    assert machine.over == (row.next in spec.block.terminal)


@pytest.mark.parametrize(("spec", "state", "event"), PAIRS)
def test_an_unwritten_pair_is_illegal(spec: TableSpec, state: Enum, event: Enum):
    """A pair without a row raises, names what would have been legal, and moves nothing."""
    machine = spec.machine_in(state)
    legal = [row.event for row in spec.rows if row.state == state.name]
    words = f"{spec.table.name}: {event.name} in {state.name} (legal: {', '.join(legal) or 'none'})"

    with pytest.raises(IllegalTransition, match=re.escape(words)):
        machine.fire(event)

    assert machine.state is state
