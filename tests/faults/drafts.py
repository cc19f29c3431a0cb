"""Faults in the MTP layer and in drafting, verifying and accepting."""

from tests.faults.fault import Fault

MTP = ("tests/engine/test_mtp.py",)
DRAFTS = ("tests/engine/test_speculate.py",)
GAINS = ("tests/engine/test_draft_gains.py",)

FAULTS = (
    Fault(
        "lookup is judged only where it drafted",
        "flashrt/engine/speculate.py",
        "            self.depth.watch(self.quoted, tokens)\n",
        "            pass\n",
        ("tests/engine/test_draft_gains.py",),
        "an agent that begins to quote would go on token by token until the next probe",
    ),
    Fault(
        "a pending hidden row that is dropped",
        "flashrt/engine/mtp.py",
        "        pairs = torch.cat((before, hidden[:-1]))",
        "        pairs = torch.cat((torch.zeros_like(before), hidden[:-1]))",
        MTP,
        "the first slot of every prefill call would hold nonsense, and drafts be wrong more often",
    ),
    Fault(
        "an MTP cache that is not filled while nothing drafts",
        "flashrt/engine/live.py",
        "            self.mtp.make_room(self.position, len(ids))",
        "            self.mtp.make_room(self.position, len(ids))\n"
        "            if len(ids) == 1:\n"
        "                self.mtp.filled = max(self.mtp.filled, self.position)",
        (*MTP, *DRAFTS),
        "a session that decoded without drafts would draft badly for ever after (G4b)",
    ),
    Fault(
        "an MTP slot with its own token",
        "flashrt/engine/mtp.py",
        "for i in range(self.filled + 1, end)]",
        "for i in range(self.filled, end - 1)]",
        MTP,
        "the layer would be fed pairs that it was not trained on",
    ),
    Fault(
        "stale drafted MTP rows that are kept",
        "flashrt/engine/mtp.py",
        "        ids, slot = self._waiting(position), self.filled\n"
        "        self.filled += len(ids)\n",
        "        ids, slot = self._waiting(position), self.filled\n"
        "        self.filled += len(ids) + count\n",
        (*MTP, *DRAFTS),
        "the cache would depend on what was drafted, and a capsule with it (G4b)",
    ),
    Fault(
        "an MTP cache that a rollback does not shorten",
        "flashrt/engine/live.py",
        "            self.mtp.filled = min(self.mtp.filled, max(0, position - 1))",
        "            pass",
        ("tests/engine/test_hybrid.py",),
        "the slot before a replaced token would keep the token that is gone (G4a)",
    ),
    Fault(
        "an MTP slot whose bits depend on how many are filled with it",
        "flashrt/engine/mtp.py",
        "hidden, go = self.layer.hidden(slot, len(ids)), RowsPass(slot, len(ids), anchor=0)",
        "hidden, go = self.layer.hidden(slot, len(ids)), BlockPass(slot, len(ids))",
        (*MTP, *DRAFTS),
        "when a capsule was taken would change its bytes (G4a)",
    ),
    Fault(
        "a fold stored too early",
        "flashrt/engine/live.py",
        "        self._processed(ids, anchor=self.anchor)\n",
        "        self._processed(ids, anchor=self.anchor)\n        self._settle()\n",
        DRAFTS,
        "rejected drafts over a multiple of 64 would have moved the state for good (G4b)",
    ),
    Fault(
        "drafts that are taken back like a rollback",
        "flashrt/engine/hybrid.py",
        "            self._live.take_back(max(start, len(journal) - 1))",
        "            self._live.truncate(max(start, len(journal) - 1))",
        DRAFTS,
        "after a rejected draft over a fold a client's undo would be refused",
    ),
    Fault(
        "one accepted too many",
        "flashrt/engine/speculate.py",
        "row == len(draft) or id_ != draft[row]:",
        "row == len(draft) or (row and journal[-2] != draft[row - 1]):",
        DRAFTS,
        "a word would follow from a draft that the model did not say (G4b)",
    ),
    Fault(
        "penalties that ignore drafts",
        "flashrt/engine/hybrid.py",
        "            return choices.of(row, journal,",
        "            told = journal[:start]\n"
        "            told += journal[start - 1 : start] * (len(journal) - start)\n"
        "            return choices.of(row, told,",
        DRAFTS,
        "with penalties, drafts would change the text (G4b)",
    ),
    Fault(
        "a stop inside a burst that is passed",
        "flashrt/engine/speculate.py",
        "        if id_ in stop_ids or row == len(draft)",
        "        if row == len(draft)",
        DRAFTS,
        "the answer would go on behind its end wherever a draft knew how",
    ),
    Fault(
        "a draft beyond the window",
        "flashrt/engine/hybrid.py",
        "        room = min(self._info.max_seq - len(self._journal), self._live.rows_max) - 1",
        "        room = min(self._info.max_seq - len(self._journal), self._live.rows_max - 1)",
        GAINS,
        "a journal could be longer than the window",
    ),
    Fault(
        "rows that cost a rollback its reach",
        "flashrt/engine/live.py",
        "        return min(ROWS_MAX, oldest + RING - self.position)",
        "        return ROWS_MAX",
        DRAFTS,
        "a long quote could take away the rows that an undo needs",
    ),
    Fault(
        "a broken row that loses what was accepted before it",
        "flashrt/engine/speculate.py",
        "            if len(journal) == start:\n                raise\n            return\n",
        "            raise\n",
        GAINS,
        "whether an answer's last words arrive would depend on drafts",
    ),
)
