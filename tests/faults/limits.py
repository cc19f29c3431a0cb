"""Faults in admission, waiting, idle sessions, and memory that runs out."""

from tests.faults.fault import Fault

LIMITS = ("tests/policy/test_limits.py",)
WORKER = ("tests/test_worker.py",)
SESSIONS = ("tests/policy/test_sessions.py", "tests/policy/test_auto_prefix.py")
LOOP = ("tests/policy/test_turn_loop.py", "tests/policy/test_out_of_memory.py")
HTTP = ("tests/http/test_streaming.py", "tests/http/test_app.py", "tests/http/test_security.py")

FAULTS = (
    Fault(
        "a limit that leaves no room for an answer",
        "flashrt/policy/limits.py",
        "        return self.max_seq - 1",
        "        return self.max_seq",
        LIMITS,
        "a request would be admitted that cannot say one token",
    ),
    Fault(
        "a refusal in words of our own",
        "flashrt/policy/limits.py",
        'f"This model\'s maximum context length is {most} tokens. However, your messages "',
        'f"The prompt may have {most} tokens. However, the context length of your messages "',
        LIMITS,
        "agents would give up where they could compact",
    ),
    Fault(
        "a client that may fill the queue",
        "flashrt/policy/limits.py",
        "if waiting_of_client >= self.queue_per_client:",
        "if False:",
        LIMITS,
        "one agent's helpers would lock all others out",
    ),
    Fault(
        "a time to come back that is not measured",
        "flashrt/policy/limits.py",
        "math.ceil(usual_s - running_s)",
        "math.ceil(usual_s)",
        LIMITS,
        "clients would wait for a request that is nearly done as if it had just begun",
    ),
    Fault(
        "places counted for everybody together",
        "flashrt/worker.py",
        "sum(item.waiter == waiter for item in self._queued)",
        "len(self._queued)",
        WORKER,
        "a quiet client would be refused for a busy one",
    ),
    Fault(
        "one that has waited too long and stays",
        "flashrt/worker.py",
        "self._end(item, LifeEvent.REJECT, Failed(self._waited_too_long()))",
        "pass",
        WORKER,
        "a request would leave the queue without an ending (G6)",
    ),
    Fault(
        "a hoard for a reader that takes nothing",
        "flashrt/worker.py",
        "if item.sink.is_overfull:",
        "if False:",
        WORKER,
        "one client that stops reading could fill the memory",
    ),
    Fault(
        "a use that does not keep a session young",
        "flashrt/policy/sessions.py",
        "        session.used_at = self._clock()\n        self._sessions[session.name] = session",
        "        self._sessions[session.name] = session",
        SESSIONS,
        "a conversation that goes on would be forgotten in the middle",
    ),
    Fault(
        "idle states that stay",
        "flashrt/policy/auto_prefix.py",
        "        return self._hot is not None and self._hot.session in idle",
        "        return False",
        SESSIONS,
        "an idle conversation's live state would be attached to after its time",
    ),
    Fault(
        "an answer without an end in time",
        "flashrt/policy/turn_loop.py",
        "if self._clock() >= deadline:",
        "if False:",
        LOOP,
        "--max-decode-ms would do nothing",
    ),
    Fault(
        "memory asked for again without letting go",
        "flashrt/policy/turn_loop.py",
        "if not self.policy.store.shrink():",
        "if False:",
        LOOP,
        "a step without memory would be tried again with nothing changed",
    ),
    Fault(
        "a refusal for memory that is an error of the server",
        "flashrt/policy/turn_loop.py",
        "ended = Ended(LifeEvent.FAIL, error=_no_memory(error))",
        "ended = Ended(LifeEvent.FAIL, error=error)",
        LOOP,
        "clients would retry at once what cannot fit",
    ),
    Fault(
        "what is held back taken for life",
        "flashrt/http/streaming.py",
        "first = await _next(item.sink, spoke_at + heartbeat_s)",
        "first = await _next(item.sink, trio.current_time() + heartbeat_s)",
        HTTP,
        "a long withheld call would be silence to the client until it gives up",
    ),
    Fault(
        "one place in the queue for every key",
        "flashrt/http/security.py",
        "return self.client(request) if self._keys else request.remote_addr or ANYBODY",
        "return request.remote_addr or ANYBODY",
        HTTP,
        "users behind one address would share their places",
    ),
)
