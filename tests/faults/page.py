"""Faults in what /health, the page and `flashrt top` show of this moment."""

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "what goes on told to everybody",
        "flashrt/http/app.py",
        "service.activity() if doorkeeper.admits(request) else None",
        "service.activity()",
        ("tests/http/test_page.py",),
        "whoever reaches the port would see who asks for what, and when",
    ),
    Fault(
        "a namespace by its name",
        "flashrt/overview.py",
        '"namespace": hidden,',
        '"namespace": hot.namespace,',
        ("tests/test_overview.py",),
        "a name that one client keeps to itself would be shown to all others",
    ),
    Fault(
        "a dead engine that still holds a session",
        "flashrt/overview.py",
        "activity.held.hot if self._worker.alive else None",
        "activity.held.hot",
        ("tests/test_overview.py",),
        "the page would promise what no request gets any more",
    ),
    Fault(
        "a step that counts the time of the one before",
        "flashrt/metrics/activity.py",
        "        self._step_ended_tokens, self._step_ended_at = position, at\n",
        "        self._step_ended_tokens = position\n",
        ("tests/metrics/test_activity.py",),
        "a long prompt would look slower with every cut",
    ),
    Fault(
        "a kind of saved states that only grows",
        "flashrt/policy/capsule_index.py",
        "        self.kinds[entry.kind] -= 1\n",
        "",
        ("tests/policy/test_capsules.py",),
        "the kinds would not add up to what is held",
    ),
    Fault(
        "a policy that lets any script run",
        "flashrt/http/page.py",
        '"script-src": _hashes(page, "script"),',
        '"script-src": "\'unsafe-inline\'",',
        ("tests/http/test_page.py",),
        "a name that holds markup could act with the key of whoever looks",
    ),
    Fault(
        "a terminal that is not given back",
        "flashrt/client/top.py",
        '        print(LEAVE, end="", flush=True)\n',
        "",
        ("tests/client/test_top.py",),
        "the shell behind it would be without a cursor, on the wrong screen",
    ),
)
