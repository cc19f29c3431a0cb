"""Do the tests notice? Plants the faults of `tests/faults/` one by one and runs their tests.

    python -m tests.planted_faults              all of them
    python -m tests.planted_faults NAME ...     those whose name contains one of the words
    python -m tests.planted_faults --list       their names, and what each would break

Faults go into a temporary copy of the tree, never into the checkout. A fault is killed if its tests
fail. The command fails if one survives, if its text no longer matches exactly once, or if its tests
fail without it, since then they prove nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.faults import FAULTS
from tests.faults.fault import Fault
from tests.source import ROOT, files

SECONDS_MAX = 300
"""A fault that makes its tests run longer than this is noticed as a hang."""

TESTS_FAILED = 1
COLLECTION_FAILED = 2


@attrs.frozen
class Run:
    """How one pytest run ended."""

    code: int | None
    output: str
    seconds: float

    @property
    def passed(self) -> bool:
        """Every selected test passed, and there was one."""
        return self.code == 0

    @property
    def failed(self) -> bool:
        """A test failed, a module could not be imported, or it hung: whoever runs this notices."""
        return self.code in (TESTS_FAILED, COLLECTION_FAILED, None)


class Tree:
    """A copy of the repository in which faults are planted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for file in files():
            target = root / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)

    def pytest(self, tests: Sequence[str], *, seconds_max: float = SECONDS_MAX) -> Run:
        """Run a selection here, up to the first failure."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            # A fault may leave a file's size and second of change as they were.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "tests.no_shrinking", *tests]
        started = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=self.root, env=environment, timeout=seconds_max,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Run(None, "", time.monotonic() - started)
        return Run(done.returncode, done.stdout, time.monotonic() - started)

    def with_fault(self, fault: Fault) -> Run:
        """Plant it, run its tests, and take it out again."""
        file = self.root / fault.file
        sound = file.read_text()
        file.write_text(fault.planted_in(sound))
        try:
            return self.pytest(fault.tests)
        finally:
            file.write_text(sound)


def chosen(words: Sequence[str]) -> list[Fault]:
    """The faults whose names contain one of the words; all if there are none."""
    return [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]


def complaint(tree: Tree, fault: Fault) -> str:
    """Plant one fault and report; what is wrong with it, or an empty string if it was killed."""
    if (count := fault.matches(ROOT)) != 1:
        return f"its text is found {count} times in {fault.file}"
    run = tree.with_fault(fault)
    if run.failed:
        verdict = "killed" if run.code is not None else "killed (hung)"
        print(f"{verdict:>14}  {run.seconds:6.1f} s  {fault.name}", flush=True)
        return ""
    return "SURVIVED" if run.passed else f"its tests could not be run:\n{run.output[-2000:]}"


def unsound(tree: Tree, faults: Sequence[Fault]) -> list[str]:
    """Selections that fail, or select nothing, in the sound tree."""
    wrong = []
    for tests in sorted({fault.tests for fault in faults}):
        run = tree.pytest(tests)
        print(f"{'sound':>14}  {run.seconds:6.1f} s  {' '.join(tests)}", flush=True)
        if not run.passed:
            wrong.append(f"{' '.join(tests)} fails without any fault:\n{run.output[-2000:]}")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every chosen fault is killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="words that names must contain")
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    options = parser.parse_args(arguments)
    faults = chosen(options.names)
    if options.list:
        print("\n".join(f"{fault.name}\n    {fault.why}" for fault in faults))
        return 0
    if not faults:
        print(f"no fault is named like {options.names}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder))
        wrong = unsound(tree, faults)
        for fault in [] if wrong else faults:
            if problem := complaint(tree, fault):
                wrong.append(f"{fault.name}: {problem}\n    {fault.why}")
                print(f"{'SURVIVED':>14}  {'':8}  {fault.name}", flush=True)
    for problem in wrong:
        print(problem, file=sys.stderr)
    print(f"{len(faults)} faults, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
