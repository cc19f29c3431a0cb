"""How the engine gets to the end of a prompt. Specification: specs/prefix.md."""

from collections.abc import Mapping
from enum import Enum

import attrs

from flashrt.policy.capsules import Entry
from flashrt.policy.replay import Replayed
from flashrt.policy.sessions import Session


class Action(Enum):
    """The plan's verb; the mission's names."""

    EXACT = "exact"
    APPEND = "append"
    MESSAGE_APPEND = "message_append"
    RESTORE = "restore"
    TRUNCATE = "truncate"
    FORK = "fork"
    REBUILD = "rebuild"


@attrs.frozen(eq=False)
class PrefixPlan:
    """What is used, from where on, and for which conversation. A value: making it changes nothing.

    `used` is the prompt as it is really used; `cached_tokens` of its ids are not computed again.
    `entry` is restored first, if there is one. `session` is gone on with; None: a new one begins.
    `parks`: what is hot is of use to somebody else. `miss` says what broke the prefix, if something
    did. `parent`: whom the prompt leaves, where a new session begins for it.
    """

    action: Action
    namespace: str
    used: Replayed
    cached_tokens: int
    entry: Entry | None = None
    session: Session | None = None
    parks: bool = False
    miss: Mapping[str, object] | None = None
    parent: Session | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """The prompt as it is really used."""
        return self.used.ids

    @property
    def new_ids(self) -> tuple[int, ...]:
        """The ids to be fed."""
        return self.used[self.cached_tokens :]


def choose_action(
    *,
    from_hot: bool,
    from_capsule: bool,
    nothing_new: bool,
    as_rendered: bool,
    same_conversation: bool,
    leaves: bool,
    in_last_turn: bool,
) -> Action:
    """The decision table of specs/prefix.md.

    `from_hot`, `from_capsule`: from where the first token comes soonest; neither: from nothing.
    `nothing_new`: no id is to be fed, or only the pending one. `as_rendered`: the ids that the
    state has processed are those of the prompt as rendered. `same_conversation`: more is shared
    with a known journal than an opening. `leaves`: the prompt does not have all of that journal's
    processed ids. `in_last_turn`: it leaves the journal of its own session in the newest turn.
    """
    match from_hot, from_capsule, nothing_new, as_rendered, same_conversation, leaves, in_last_turn:
        case True, _, True, _, _, _, _:
            return Action.EXACT
        case True, _, False, True, _, _, _:
            return Action.APPEND
        case True, _, False, False, _, _, _:
            return Action.MESSAGE_APPEND
        case False, False, _, _, _, _, _:
            return Action.REBUILD
        case False, True, _, _, True, True, True:
            return Action.TRUNCATE
        case False, True, _, _, True, True, False:
            return Action.FORK
    return Action.RESTORE
