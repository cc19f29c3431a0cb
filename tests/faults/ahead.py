"""Faults in rows that the device begins before the host knows their ids."""

from tests.faults.fault import Fault

AHEAD = ("tests/engine/test_ahead.py",)

FAULTS = (
    Fault(
        "a row ahead that outlives a rollback",
        "flashrt/engine/live.py",
        "        if position < self.position:\n            self.ahead = None\n",
        "",
        AHEAD,
        "an id would count as processed at a place where no row of it was computed (G2)",
    ),
    Fault(
        "a row ahead that outlives a restore",
        "flashrt/engine/live.py",
        "self.position, self.anchor, self.floor = position, chunk, position\n"
        "        self.ahead = None\n",
        "self.position, self.anchor, self.floor = position, chunk, position\n",
        AHEAD,
        "a session would go on with a row of the one before it",
    ),
    Fault(
        "a row ahead that outlives the rows behind it",
        "flashrt/engine/live.py",
        "        self.anchor, self.ahead = anchor, None\n",
        "        self.anchor = anchor\n",
        AHEAD,
        "a repeated id would be taken for the row that was computed one place before",
    ),
    Fault(
        "a row ahead over a fold",
        "flashrt/engine/live.py",
        "self.model.runs_ahead and self.anchor == self.position // CHUNK",
        "self.model.runs_ahead",
        AHEAD,
        "the row would be computed behind the window of the chunk before, or store an anchor early",
    ),
    Fault(
        "a row ahead that is taken for any id",
        "flashrt/engine/live.py",
        "        if tuple(ids) != (self.ahead,):",
        "        if self.ahead is None or len(ids) > 1:",
        AHEAD,
        "what a caller writes in place of the chosen id would not be read",
    ),
    Fault(
        "a row that is begun although the next one is drawn",
        "flashrt/engine/choices.py",
        "params.logprobs is None and takes_likeliest(params)",
        "params.logprobs is None",
        AHEAD,
        "an id that noise or a penalty would choose would be overruled by the likeliest one",
    ),
    Fault(
        "a row that is begun behind drafts",
        "flashrt/engine/hybrid.py",
        "        ahead = isinstance(drafting, NoDrafts)\n",
        "        ahead = True\n",
        AHEAD,
        "the device does not know which of the drafts stay",
    ),
    Fault(
        "a row ahead behind the window",
        "flashrt/engine/hybrid.py",
        "bool(ahead and rows and len(journal) + 1 < self._info.max_seq)",
        "bool(ahead and rows)",
        AHEAD,
        "the device would compute a row that no journal can hold",
    ),
)
