"""Faults in what becomes of a client that leaves, and of those beside it."""

from tests.faults.fault import Fault

MATRIX = ("tests/whole/test_cancel_matrix.py",)

FAULTS = (
    Fault(
        "a client that left while its prompt was rendered reaches the engine",
        "flashrt/service.py",
        "            await trio.lowlevel.checkpoint_if_cancelled()\n",
        "",
        ("tests/test_service.py", *MATRIX),
        "the hot state would be parked for a request that nobody waits for (G7)",
    ),
    Fault(
        "a client that left while its prompt was rendered has no record",
        "flashrt/service.py",
        "            self._admission.end(new_record(), Machine(LIFECYCLE), "
        "LifeEvent.CANCEL, left)\n",
        "",
        ("tests/test_service.py", *MATRIX),
        "records would be fewer than requests",
    ),
    Fault(
        "a hang-up that pipelined bytes hide",
        "flashrt/http/server.py",
        "            reading.start_soon(self._watch, reading.cancel_scope)\n",
        "",
        MATRIX,
        "the engine would work on for a client that has gone (G7)",
    ),
    Fault(
        "a client that does not read is never given up",
        "flashrt/http/server.py",
        "            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)\n",
        "            pass\n",
        MATRIX,
        "its answer, its task and its connection would stay for ever",
    ),
    Fault(
        "an exit that leaves its item behind",
        "flashrt/http/guard.py",
        "            for leave in exits:\n                leave()\n",
        "            exits.clear()\n",
        MATRIX,
        "whoever hangs up would keep the engine to the end of the answer (G7)",
    ),
    Fault(
        "a tokenizer that keeps the interpreter's lock",
        "flashrt/chat/tokenizer.py",
        "tokenizer.encode_batch_fast([text], add_special_tokens=False)",
        "[tokenizer.encode(text, add_special_tokens=False)]",
        ("tests/chat/test_tokenizer.py",),
        "a megabyte of text would stop /health and all streams for a second",
    ),
)
