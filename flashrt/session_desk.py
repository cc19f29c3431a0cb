"""From a session call to an admitted item: it waits in the one line like any other request."""

import time

import attrs

from flashrt.admission import Admission, new_record
from flashrt.chat.session_call import AnySessionCall, CreateSession
from flashrt.items import SessionItem
from flashrt.namespaces import namespace
from flashrt.policy.session_calls import SessionWork


@attrs.frozen
class SessionDesk:
    """Takes session calls on the trio loop.

    `epoch_s`: what makes the seconds of session reports, which are monotonic, those of the wall.
    """

    _admission: Admission
    _namespace_from: str
    epoch_s: float = attrs.field(factory=lambda: time.time() - time.monotonic())

    def open(self, call: AnySessionCall, *, client: str, waiter: str = "") -> SessionItem:
        """Queue a call. Raises Refused: queue full, not ready, or draining and it begins a session.

        `client` and `waiter` are those of `AgentService.open`.
        """
        work = SessionWork(namespace(call.hints, client, self._namespace_from), call)
        item = SessionItem(work, new_record(call.operation), waiter)
        is_new = isinstance(call, CreateSession) and call.session is None
        self._admission.admit(item, lambda: not is_new)
        return item
