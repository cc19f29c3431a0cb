"""Faults in the ways out: the soft drain, the grace time, and the command."""

from tests.faults.fault import Fault

DRAIN = ("tests/whole/test_drain.py",)

FAULTS = (
    Fault(
        "a soft drain that takes anybody",
        "flashrt/admission.py",
        "        if self.current_state() is ServerState.SOFT_DRAINING and not is_known():\n",
        "        if False:\n",
        DRAIN,
        "a worker that is to be taken out would get new conversations for ever",
    ),
    Fault(
        "a soft drain that says 503",
        "flashrt/admission.py",
        "ServerState.SOFT_DRAINING: 404}",
        "ServerState.SOFT_DRAINING: 503}",
        DRAIN,
        "the router would send all conversations away, cold, as in a hard drain",
    ),
    Fault(
        "a signal that does not end a soft drain",
        "flashrt/service.py",
        "        if self._admission.current_state() in READY_STATUSES:\n",
        "        if self._admission.current_state() is ServerState.READY:\n",
        DRAIN,
        "the stop of a worker that was drained first would be an illegal move",
    ),
    Fault(
        "a conversation that is known in every namespace",
        "flashrt/policy/known.py",
        'digest("session", namespace, ',
        'digest("session", ',
        ("tests/policy/test_known.py",),
        "one client's name for its session would place another's",
    ),
    Fault(
        "an opening that grows with the conversation",
        "flashrt/policy/known.py",
        "        if part.asks:\n            return\n",
        "",
        ("tests/policy/test_known.py",),
        "clients without hints would be sent away at their next turn",
    ),
    Fault(
        "a stop without an end of the grace time",
        "flashrt/serve.py",
        "    service.cut_off()\n",
        "",
        DRAIN,
        "answers would be cut by the server under them, without an error event",
    ),
    Fault(
        "an answer that is cut off without a reason",
        "flashrt/worker.py",
        "            self._running.cancel.cancel(why)\n",
        "            self._running.cancel.cancel()\n",
        DRAIN,
        "a client would be told that it had left",
    ),
    Fault(
        "a request that waits in a stopped server",
        "flashrt/worker.py",
        "        for item in list(self._queued):\n            del self._queued[item]\n"
        "            self._end(item, LifeEvent.REJECT, Failed(why))\n",
        "",
        DRAIN,
        "it would be started when its time is over",
    ),
    Fault(
        "a wait that looks at the queue alone",
        "flashrt/client/drain.py",
        "(state := server.state()).rendering or state.queued or state.running is not None",
        "server.state().queued",
        ("tests/client/test_drain.py",),
        "a worker would be stopped in the middle of an answer",
    ),
    Fault(
        "a wait that overlooks prompts that are being made",
        "flashrt/client/drain.py",
        "(state := server.state()).rendering or state.queued",
        "(state := server.state()).queued",
        ("tests/client/test_drain.py",),
        "a worker would be stopped with a request that it has taken",
    ),
    Fault(
        "a prompt that is made for ever",
        "flashrt/service.py",
        "            self._opening -= 1",
        "            pass",
        ("tests/test_service.py",),
        "no wait for an idle server would end",
    ),
)
