"""Faults in what the estimates of a first token are told."""

from tests.faults.fault import Fault

MEASURED = ("tests/policy/test_measured.py",)
FILE = "flashrt/policy/measured.py"

FAULTS = (
    Fault(
        "a prefill that took what giving it out took",
        FILE,
        "self._tokens, self._prefill_ms = self._tokens + tokens, self._prefill_ms + ms",
        "self.costs.prefilled(tokens, ms)",
        MEASURED,
        "on a device short turns would make long prompts look free, and no state be brought back",
    ),
    Fault(
        "an id that another item's prefill is charged for",
        FILE,
        "self.restore_ms, self._fetch_ms = None, 0.0\n        self._forget()",
        "self.restore_ms, self._fetch_ms = None, 0.0",
        MEASURED,
        "a cancelled prompt would count as one that a later id waited for",
    ),
    Fault(
        "a rollback that keeps what was processed before",
        FILE,
        "case Reset() | Rollback():",
        "case Reset():",
        MEASURED,
        "ids that are gone would count as processed until the next one",
    ),
    Fault(
        "reading that every later restore takes too",
        FILE,
        "ms, self._fetch_ms = ms + self._fetch_ms, 0.0",
        "ms = ms + self._fetch_ms",
        MEASURED,
        "states in memory would look as slow as those on disk",
    ),
    Fault(
        "a first id that waits for nothing",
        FILE,
        "self.costs.prefilled(self._tokens, self._prefill_ms + ms)",
        "self.costs.prefilled(self._tokens, self._prefill_ms)",
        MEASURED,
        "as if a device had done its work when it was given it",
    ),
)
