"""The smallest honest answer: stop ids, a length, and an optional stop sequence of ids."""

from collections.abc import Sequence

from flashrt.chat.deltas import Ending, Fed, FinishReason
from flashrt.chat.visible import Visible


class IdAnswer:
    """Reads ids as ids, without text: an ending where a stop id, the length or `stop_pair` says so.

    `stop_pair`: two ids in a row end the answer, and neither stays in the journal, as with a stop
    string of two tokens.
    """

    def __init__(
        self,
        max_tokens: int,
        stop_ids: frozenset[int] = frozenset(),
        stop_pair: tuple[int, int] | None = None,
    ) -> None:
        self.max_tokens = max_tokens
        self.stop_ids = stop_ids
        self.stop_pair = stop_pair
        self.ids: list[int] = []

    def feed(self, tokens: Sequence[int]) -> Fed:
        """Walk a burst id by id."""
        for token in tokens:
            self.ids.append(token)
            ending = self._ending(token)
            if ending is not None:
                return Fed((), ending)
        return Fed(())

    def window_end(self) -> Fed:
        """No more room."""
        return Fed((), self._end(FinishReason.LENGTH, len(self.ids)))

    @property
    def visible(self) -> Visible:
        """The ids, written out."""
        return Visible(content=" ".join(map(str, self.ids)))

    def _ending(self, token: int) -> Ending | None:
        count = len(self.ids)
        if token in self.stop_ids:
            return self._end(FinishReason.STOP, count)
        if self.stop_pair is not None and tuple(self.ids[-2:]) == self.stop_pair:
            return self._end(FinishReason.STOP, max(count - 2, 1))
        if count == self.max_tokens:
            return self._end(FinishReason.LENGTH, count)
        return None

    def _end(self, reason: FinishReason, kept: int) -> Ending:
        return Ending(reason, sampled_tokens=len(self.ids), kept_tokens=kept)
