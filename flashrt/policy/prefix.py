"""How the engine gets to the end of a prompt. Specification: specs/prefix.md."""

from enum import Enum

import attrs


class Action(Enum):
    """The plan's verb; the mission's names."""

    EXACT = "exact"
    APPEND = "append"
    REBUILD = "rebuild"


@attrs.frozen
class PrefixPlan:
    """`ids`: the prompt as it is really used; `cached_tokens` of them are not computed again."""

    action: Action
    ids: tuple[int, ...]
    cached_tokens: int

    @property
    def new_ids(self) -> tuple[int, ...]:
        """The ids to be fed."""
        return self.ids[self.cached_tokens :]


def choose_action(
    *, attachable: bool, heads_prompt: bool, all_processed: bool, only_pending_left: bool
) -> Action:
    """The decision table of specs/prefix.md.

    `attachable`: there is a committed live state of this namespace. `heads_prompt`: all ids that it
    has processed are the prompt's. `all_processed`: nothing of the prompt is left to feed.
    `only_pending_left`: one id is left, and it is the journal's pending id.
    """
    match attachable, heads_prompt, all_processed, only_pending_left:
        case False, _, _, _:
            return Action.REBUILD
        case True, False, _, _:
            return Action.REBUILD
        case True, True, True, _:
            return Action.EXACT
        case True, True, False, True:
            return Action.EXACT
    return Action.APPEND
