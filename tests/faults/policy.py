"""Faults in what decides: the turn loop, plans, the journal, cuts, limits."""

from tests.faults.fault import Fault

LOOP = ("tests/policy/test_turn_loop.py", "tests/walks/test_turn_loop_walk.py")
PREFIX = ("tests/policy/test_auto_prefix.py", "tests/specs/test_decisions.py")
WORKER = ("tests/test_worker.py",)

FAULTS = (
    Fault(
        "a cancel that stays hot",
        "flashrt/policy/turn_loop.py",
        "        except _Cancelled:\n            pass",
        "        except _Cancelled:\n            clean = True",
        LOOP,
        "the next request could attach to half an answer that its client never saw (G2)",
    ),
    Fault(
        "a fault that stays hot",
        "flashrt/policy/turn_loop.py",
        "            if not clean:\n                self._invalidate()",
        "            if not clean and ended.event is not LifeEvent.FAIL:\n"
        "                self._invalidate()",
        LOOP,
        "the next request could attach to whatever a failed step has written (G2)",
    ),
    Fault(
        "a policy that does not forget",
        "flashrt/policy/auto_prefix.py",
        '        """There is no live state to attach to any more."""\n        self._hot = None',
        '        """There is no live state to attach to any more."""',
        (*LOOP, *PREFIX),
        "plans would be made against a state that is gone",
    ),
    Fault(
        "an equal prompt taken for an extension",
        "flashrt/policy/prefix.py",
        "        case True, True, True, _:\n            return Action.EXACT",
        "        case True, True, True, _:\n            return Action.APPEND",
        PREFIX,
        "a retried request would be planned as a prefill of no tokens",
    ),
    Fault(
        "a prompt that leaves the journal taken for its extension",
        "flashrt/policy/journal.py",
        "return self.ids[: self.processed] == tuple(prompt[: self.processed])",
        "return self.processed <= len(prompt)",
        (*PREFIX, "tests/policy/test_journal.py"),
        "lengths are no proof: another conversation's state would be attached to (G5)",
    ),
    Fault(
        "only the last id is compared",
        "flashrt/policy/journal.py",
        "return self.ids[: self.processed] == tuple(prompt[: self.processed])",
        "return self.ids[self.processed - 1 :][:1] == tuple(prompt[self.processed - 1 :][:1])",
        (*PREFIX, "tests/policy/test_journal.py"),
        "two conversations often agree in their newest id (G5)",
    ),
    Fault(
        "a namespace that is not looked at",
        "flashrt/policy/auto_prefix.py",
        "hot = self._hot if self._hot is not None and self._hot.namespace == salt else None",
        "hot = self._hot",
        PREFIX,
        "how fast an answer comes would tell one tenant what another has asked (G10)",
    ),
    Fault(
        "a state that may lead",
        "flashrt/policy/journal.py",
        "if pending not in (0, 1):",
        "if pending > 1:",
        ("tests/policy/test_journal.py", "tests/policy/test_auto_prefix.py"),
        "KV could lead the transcript without anybody noticing (G2)",
    ),
    Fault(
        "a stop that is not cut out of its burst",
        "flashrt/policy/turn_loop.py",
        "        if dropped:\n            yield Rollback(dropped)",
        "        if dropped > 1:\n            yield Rollback(dropped)",
        LOOP,
        "ids past the stop would stay in the state and lead the journal (G2)",
    ),
    Fault(
        "text past the end is shown",
        "flashrt/policy/turn_loop.py",
        "chunk.tokens[: len(chunk.tokens) - surplus]",
        "chunk.tokens",
        LOOP,
        "ids that were never part of the answer would be counted and returned",
    ),
    Fault(
        "a lost last event",
        "flashrt/policy/turn_loop.py",
        "                step = _advance(steps, step, perform)\n"
        "            yield self._take_events()",
        "                step = _advance(steps, step, perform)",
        (*LOOP, *WORKER),
        "a client would wait for ever for the end of its answer (G6)",
    ),
    Fault(
        "penalties that count from a wrong place",
        "flashrt/policy/turn_loop.py",
        "params = attrs.evolve(turn.sampling, output_start=len(self._ids))",
        "params = turn.sampling",
        LOOP,
        "presence and frequency penalties would count the prompt's ids",
    ),
    Fault(
        "a cancel that is seen only at the end of the prompt",
        "flashrt/policy/turn_loop.py",
        "            self._check(turn)\n            if position == len(plan.ids):\n"
        "                break",
        "            if position == len(plan.ids):\n                break",
        (*LOOP, *WORKER),
        "a client that leaves in a long prefill would hold the engine to its end (G3, G7)",
    ),
    Fault(
        "a cancel that decode does not look at",
        "flashrt/policy/turn_loop.py",
        "            self._check(turn)\n            chunk = yield step",
        "            chunk = yield step",
        (*LOOP, *WORKER),
        "a client that leaves would hold the engine to the end of its answer (G7)",
    ),
    Fault(
        "a cut at the end of the prompt",
        "flashrt/policy/cuts.py",
        "for point in points if position < point < len(ids)",
        "for point in points if position < point <= len(ids)",
        ("tests/policy/test_cuts.py",),
        "engines refuse a cut that cuts nothing",
    ),
    Fault(
        "a cut that a hit moves",
        "flashrt/policy/cuts.py",
        "range(self.chunk_tokens, len(ids), self.chunk_tokens)",
        "range(position + self.chunk_tokens, len(ids), self.chunk_tokens)",
        ("tests/policy/test_cuts.py",),
        "a prefill from a capsule would not have the bits of a cold one (G4c)",
    ),
    Fault(
        "a prompt that fills the window",
        "flashrt/policy/limits.py",
        "return self.max_seq - 1",
        "return self.max_seq",
        ("tests/policy/test_limits.py",),
        "a request would be started that has no room for one token of answer (G9)",
    ),
)
