"""The automatic prefix policy: what the engine thread asks before each request."""

from collections.abc import Sequence

from flashrt.policy.journal import Journal
from flashrt.policy.prefix import Action, PrefixPlan, choose_action


class AutoPrefixPolicy:
    """Knows the journal of the one hot state, and decides by ids alone whether to attach to it."""

    def __init__(self) -> None:
        self._hot: Journal | None = None

    @property
    def hot(self) -> Journal | None:
        """The journal of the live state, if it may be attached to."""
        return self._hot

    def plan(self, incoming_tokens: Sequence[int], *, salt: str) -> PrefixPlan:
        """The cheapest honest way to the end of `incoming_tokens` in the namespace `salt`."""
        ids = tuple(incoming_tokens)
        hot = self._hot if self._hot is not None and self._hot.namespace == salt else None
        processed = hot.processed if hot is not None else 0
        action = choose_action(
            attachable=hot is not None and processed > 0,
            heads_prompt=hot is not None and hot.heads(ids),
            all_processed=processed == len(ids),
            only_pending_left=hot is not None and ids[processed:] == hot.ids[processed:] != (),
        )
        return PrefixPlan(action, ids, 0 if action is Action.REBUILD else processed)

    def on_commit(self, session: str, tokens: Sequence[int], *, lookahead: int) -> None:
        """The live state of namespace `session` stands for `tokens`.

        `lookahead` counts the newest tokens that the state has not processed: 0 or 1. A negative
        one would mean that KV leads the transcript, and raises.
        """
        self._hot = Journal(tuple(tokens), len(tokens) - lookahead, session)

    def forget(self) -> None:
        """There is no live state to attach to any more."""
        self._hot = None
