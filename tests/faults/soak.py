"""Faults in what a connection does for the others, and in the soak's own checks."""

from tests.faults.fault import Fault

SERVER = ("tests/http/test_server.py",)
SOAK = ("tests/bench/soak",)
ANSWERS = ("tests/bench/soak/test_answers.py",)

FAULTS = (
    Fault(
        "a send whose turn can be cancelled",
        "flashrt/http/server.py",
        "        self.send_lock = _Turns()  # type: ignore[assignment]\n",
        "",
        SERVER,
        "a client that leaves as its answer begins would end the whole server (G7)",
    ),
    Fault(
        "a connection that takes the server along",
        "flashrt/http/server.py",
        "        except* Exception as error:\n",
        "        except* ZeroDivisionError as error:\n",
        SERVER,
        "one defect of hypercorn's on one connection would end all of them (G7)",
    ),
    Fault(
        "an answer into a connection that is being closed",
        "flashrt/http/server.py",
        "        except trio.BusyResourceError:\n            await self.protocol.handle(",
        "        except ZeroDivisionError:\n            await self.protocol.handle(",
        SERVER,
        "the log would have a traceback where nothing is wrong",
    ),
    Fault(
        "a soak that takes two endings for one",
        "flashrt/bench/soak/answers.py",
        '            _require(self._finish is None, f"a second ending',
        '            _require(True, f"a second ending',
        ANSWERS,
        "a stream with two endings would pass (G6)",
    ),
    Fault(
        "a soak that takes a broken stream for a whole one",
        "flashrt/bench/soak/answers.py",
        "        _require(self._done or self._error is not None,",
        "        _require(True,",
        ANSWERS,
        "an answer that just stops would pass (G6)",
    ),
    Fault(
        "a soak that compares no ids",
        "flashrt/bench/soak/reference.py",
        "if got != want), None)",
        "if got is want is None), None)",
        SOAK,
        "wrong answers would pass (G4)",
    ),
    Fault(
        "a soak that counts no requests",
        "flashrt/bench/soak/tally.py",
        "            if not least <= count <= most\n",
        "            if count > most\n",
        SOAK,
        "records that are never closed would pass",
    ),
    Fault(
        "a soak that does not look whether all is quiet",
        "flashrt/bench/soak/quiet.py",
        "    if running is None and queued == 0:\n",
        "    if True:\n",
        SOAK,
        "requests that are stuck would pass",
    ),
    Fault(
        "a soak whose status is always 0",
        "flashrt/bench/soak/run.py",
        "    return 1 if outcome.tally.violations else 0\n",
        "    return 0\n",
        SOAK,
        "CI would not notice",
    ),
)
