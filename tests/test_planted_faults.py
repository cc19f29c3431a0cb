"""The list of planted faults fits the code, and the command that plants them can tell."""

from pathlib import Path

import attrs
import pytest

from tests.faults import FAULTS
from tests.faults.fault import Fault
from tests.planted_faults import COLLECTION_FAILED, TESTS_FAILED, Run, Tree, chosen, main
from tests.source import ROOT

EXAMPLE = Fault(
    "an example",
    "flashrt/policy/limits.py",
    "return self.max_seq - 1",
    "return self.max_seq",
    ("tests/policy/test_limits.py",),
    "none",
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_still_fits_the_code(fault: Fault):
    """Its text stands in the file exactly once, and its tests exist."""
    assert fault.matches(ROOT) == 1
    assert [path for path in fault.tests if not (ROOT / path.partition("::")[0]).exists()] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_still_python(fault: Fault):
    """A file that cannot be compiled is noticed by anybody, and shows nothing about the tests."""
    planted = fault.planted_in((ROOT / fault.file).read_text())

    compile(planted, fault.file, "exec")
    assert fault.old != fault.new


def test_names_are_unique_and_reasons_are_given():
    """A name picks one fault; its reason says what would break for whom."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert all(fault.why for fault in FAULTS)


def test_words_choose_faults_by_name():
    """No word means all."""
    assert chosen([]) == list(FAULTS)
    assert {fault.name for fault in chosen(["stays hot"])} < {fault.name for fault in FAULTS}


@pytest.mark.parametrize(
    ("code", "passed", "failed"),
    [
        (0, True, False),
        (TESTS_FAILED, False, True),
        (COLLECTION_FAILED, False, True),
        (None, False, True),
        (4, False, False),
        (5, False, False),
    ],
)
def test_only_tests_that_ran_and_failed_kill(code: int | None, passed: bool, failed: bool):
    """A selection that is empty or misspelt is neither: it is reported as a problem."""
    run = Run(code, "", 0.0)

    assert (run.passed, run.failed) == (passed, failed)


def test_a_fault_that_does_not_match_is_not_planted():
    """A text that is gone, or not unique, is a mistake in the list."""
    lost = attrs.evolve(EXAMPLE, old="return self.max_seq - 2")

    assert lost.matches(ROOT) == 0
    with pytest.raises(AssertionError, match="is not unique"):
        lost.planted_in((ROOT / lost.file).read_text())


def test_nothing_is_chosen_by_a_word_that_no_name_has(capsys: pytest.CaptureFixture[str]):
    """A typing mistake does not report success."""
    assert main(["no such fault"]) == 1
    assert "no such fault" in capsys.readouterr().err


@pytest.mark.slow
def test_a_planted_fault_is_killed_and_the_checkout_is_left_alone(tmp_path: Path):
    """The copy has the fault while its tests run, and only then; the checkout never has it."""
    before = (ROOT / EXAMPLE.file).read_text()
    tree = Tree(tmp_path)

    sound, faulty, healed = (
        tree.pytest(EXAMPLE.tests),
        tree.with_fault(EXAMPLE),
        tree.pytest(EXAMPLE.tests),
    )

    assert (sound.code, faulty.code, healed.code) == (0, TESTS_FAILED, 0)
    assert "test_limits" in faulty.output
    assert (ROOT / EXAMPLE.file).read_text() == before


@pytest.mark.slow
def test_a_harmless_change_survives(tmp_path: Path):
    """What no test can notice is reported as such: the verdict is not always 'killed'."""
    harmless = attrs.evolve(EXAMPLE, new="return -1 + self.max_seq")

    assert Tree(tmp_path).with_fault(harmless).passed
