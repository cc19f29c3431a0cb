"""What a server does at this moment, in figures and without a word of any text."""

import hashlib
import secrets
import time
from collections.abc import Iterator
from itertools import islice

import attrs
import trio

from flashrt.metrics.activity import Hot, waiting
from flashrt.metrics.ledger import Ledger
from flashrt.worker import EngineWorker

SHOWN_MAX = 20
"""Waiting requests, and newest finished ones, that are shown one by one."""


@attrs.frozen
class Overview:
    """Looks at the parts of one server, on the trio loop."""

    _worker: EngineWorker
    _ledger: Ledger
    _rendering: trio.CapacityLimiter
    _hiding_key: bytes = attrs.field(factory=lambda: secrets.token_bytes(16), repr=False)

    def report(self) -> dict[str, object]:
        """The `activity` of /health; docs/http.md says what each field means."""
        now, activity = time.perf_counter(), self._worker.activity
        rendering = self._rendering.statistics()
        hot = activity.held.hot if self._worker.alive else None
        return {
            "rendering": rendering.borrowed_tokens + rendering.tasks_waiting,
            "requests": [*self._running(now), *self._waiting(now)],
            "hot": None if hot is None else self._shown(hot),
            "capsule_kinds": dict(activity.held.kinds),
            "prefill_tok_per_s": activity.prefill.per_s(now),
            "decode_tok_per_s": activity.decode.per_s(now),
            "recent": [r.report(now) for r in islice(reversed(self._ledger.recent), SHOWN_MAX)],
        }

    def _running(self, now: float) -> Iterator[dict[str, object]]:
        item = self._worker.running
        if item is not None:
            yield self._worker.activity.running(
                item.record, item.life.state, leaving=item.cancel.cancelled, now=now
            )

    def _waiting(self, now: float) -> Iterator[dict[str, object]]:
        """Oldest first."""
        for item in islice(self._worker.waiting(), SHOWN_MAX):
            yield waiting(item.record, item.life.state, now=now)

    def _shown(self, hot: Hot) -> dict[str, object]:
        """The namespace is a hash that means nothing in another run: its name may be a secret."""
        text = hot.namespace.encode(errors="surrogatepass")
        hidden = hashlib.blake2b(text, key=self._hiding_key, digest_size=4).hexdigest()
        return {"session": hot.session, "namespace": hidden, "tokens": hot.tokens}
