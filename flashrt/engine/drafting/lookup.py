"""Prompt lookup: a drafter without weights, which expects that the journal repeats itself."""

from collections.abc import Sequence

import numpy as np

PROPOSED_MAX = 63
"""So many rows are verified beside the pending one."""

NGRAM_MAX = 16
NGRAM_MIN = 3
"""Shorter equal n-grams say little: a draft from them is hardly ever accepted."""

NEWEST_ID_PLACES_MAX = 4096
NGRAM_PLACES_MAX = 512
"""Only so many places are looked at, the newest, where the newest id or n-gram is very common."""

SEAM = 64
"""A copy whose newest so many ids are still there is not compared further back."""

NO_ID = -1


class PromptLookup:
    """Proposes what followed the longest n-gram that equals the journal's newest ids.

    Keeps a copy of the journal, to which each call adds what is new. A journal that is no extension
    of the copy is compared as a whole, once.
    """

    def __init__(self) -> None:
        # No n-gram reaches over the front: there is room for one, of what is no id.
        self._copy = np.full(1024, NO_ID, np.int32)
        self._length = 0

    def propose(self, journal: Sequence[int], count: int) -> tuple[int, ...]:
        """Up to `count` (at most 63) ids that stand in the journal behind an equal n-gram.

        The longest n-gram from 16 ids to 3 counts; of its places the newest that has `count` ids
        behind it, else the oldest, which has most. So where a line is repeated again and again, the
        draft is as long as the repetitions so far allow; it never goes on past the journal's end.
        """
        count = min(count, PROPOSED_MAX)
        if count < 1:
            return ()
        self._follow(journal)
        at = self._place(count)
        if at is None:
            return ()
        if list(journal[at - NGRAM_MIN : at]) != list(journal[-NGRAM_MIN:]):
            # The copy is of another journal, one with the same newest ids.
            self._length = 0
            return self.propose(journal, count)
        return tuple(journal[at : at + count])

    def _ids(self, start: int, end: int) -> np.ndarray:
        """Ids of the copy, without its front."""
        return self._copy[NGRAM_MAX + start : NGRAM_MAX + end]

    def _follow(self, journal: Sequence[int]) -> None:
        """Make the copy equal the journal."""
        known, length = self._known(journal), len(journal)
        if NGRAM_MAX + length > len(self._copy):
            grown = np.full(NGRAM_MAX + 2 * length, NO_ID, np.int32)
            grown[: NGRAM_MAX + known] = self._copy[: NGRAM_MAX + known]
            self._copy = grown
        self._ids(known, length)[:] = journal[known:]
        self._length = length

    def _known(self, journal: Sequence[int]) -> int:
        """How many of the journal's ids the copy has already."""
        length = self._length
        if length <= len(journal) <= length + SEAM:
            seam = max(0, length - SEAM)
            if self._ids(seam, length).tolist() == list(journal[seam:length]):
                return length
        common = min(length, len(journal))
        differs = self._ids(0, common) != np.array(journal[:common], np.int32)
        return int(differs.argmax()) if differs.any() else common

    def _place(self, count: int) -> int | None:
        """Where the ids behind the best equal n-gram begin."""
        if self._length <= NGRAM_MIN:
            return None
        front, end = self._copy, NGRAM_MAX + self._length
        ids = front[NGRAM_MAX : end - 1]
        # Places are behind the n-gram, counted in the copy with its front.
        places = np.flatnonzero(ids == front[end - 1])[-NEWEST_ID_PLACES_MAX:] + NGRAM_MAX + 1
        for n in range(2, NGRAM_MIN + 1):
            places = places[front[places - n] == front[end - n]]
        places = places[-NGRAM_PLACES_MAX:]
        if not len(places):
            return None
        for n in range(NGRAM_MIN + 1, NGRAM_MAX + 1):
            longer = places[front[places - n] == front[end - n]]
            if not len(longer):
                break
            places = longer
        roomy = places[places <= end - count]
        return int(roomy[-1] if len(roomy) else places[0]) - NGRAM_MAX
