"""What the live state stands for: its ids, how many it has processed, and for whom."""

from collections.abc import Sequence

import attrs


@attrs.frozen
class Journal:
    """The ids of one committed boundary: `processed` of them in the state, at most one pending.

    G2 as a constructor: a journal whose state has processed more than its ids cannot be made.
    """

    ids: tuple[int, ...]
    processed: int
    namespace: str

    def __attrs_post_init__(self) -> None:
        pending = len(self.ids) - self.processed
        if pending not in (0, 1):
            raise AssertionError(
                f"the state has processed {self.processed} ids, its journal has {len(self.ids)}: "
                "KV would lead or trail the transcript"
            )

    def heads(self, prompt: Sequence[int]) -> bool:
        """Whether every processed id is the prompt's id at the same place."""
        return self.ids[: self.processed] == tuple(prompt[: self.processed])
