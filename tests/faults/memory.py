"""Faults in what bounds the memory of a server that runs for weeks."""

from tests.faults.fault import Fault

SEGMENTS = ("tests/chat/test_segments.py",)
REPLAY = ("tests/policy/test_replay.py",)
SESSIONS = ("tests/policy/test_sessions.py",)
GRAMMAR = ("tests/chat/test_grammar.py",)
WORKER = ("tests/test_worker.py",)
SERVICE = ("tests/test_namespaces.py",)

FAULTS = (
    Fault(
        "a segment that weighs its ids alone",
        "flashrt/chat/prompt.py",
        "return OBJECT_BYTES + texts + sys.getsizeof(self.packed)",
        "return len(self.packed)",
        (*SEGMENTS, *SESSIONS),
        "a million one-word pieces would take a hundred times what is allowed",
    ),
    Fault(
        "a segment cache that is not bounded",
        "flashrt/chat/segments.py",
        "while self._bytes > self._bytes_max:",
        "while False:",
        SEGMENTS,
        "every text that a client ever sent would be kept",
    ),
    Fault(
        "a place that is not counted once its name is taken",
        "flashrt/policy/replay.py",
        "            if self._holders[place]:\n                return\n",
        "            if False:\n                return\n",
        REPLAY,
        "answers that were sampled anew, and gone on with, would pile up unseen",
    ),
    Fault(
        "sessions bounded by their number alone",
        "flashrt/policy/sessions.py",
        "or self._bytes > self._bytes_max",
        "",
        SESSIONS,
        "256 conversations of a long window hold gigabytes",
    ),
    Fault(
        "a turn whose session is not weighed",
        "flashrt/policy/turn_loop.py",
        "            yield from self._saver.save(run.spot(Kind.COMMITTED))\n"
        "        self.policy.sessions.weigh(run.session)\n",
        "            yield from self._saver.save(run.spot(Kind.COMMITTED))\n",
        SESSIONS,
        "sessions would be bounded by what they held when they were empty",
    ),
    Fault(
        "grammars that are not bounded",
        "flashrt/chat/grammar.py",
        "while self._bytes > self._bytes_max:",
        "while False:",
        GRAMMAR,
        "a client that makes up schemas would fill the memory",
    ),
    Fault(
        "a namespace as long as its name",
        "flashrt/namespaces.py",
        'return f"{source}:{_hashed(value)}"',
        'return f"{source}:{value}"',
        SERVICE,
        "each session and saved state would hold a text as large as a body",
    ),
    Fault(
        "a heap that is never tidied",
        "flashrt/worker.py",
        "                self._tidy()\n",
        "",
        WORKER,
        "the holes that saved states leave would stay with the process",
    ),
    Fault(
        "an allocator that gives nothing back",
        "flashrt/allocator.py",
        "return bool(trim(0))",
        "return True",
        ("tests/test_allocator.py",),
        "the holes that saved states leave would stay with the process",
    ),
)
