"""Why less was reused than the client had reason to hope for: the miss report."""

from collections.abc import Mapping

from flashrt.chat.breaks import BreakKind, find_break
from flashrt.chat.outline import PartKind
from flashrt.chat.prompt import Prompt, Wording
from flashrt.policy.sessions import Session

EVICTED = "evicted"
MISS_KINDS = (*(kind.value for kind in BreakKind), EVICTED)


def what_broke(
    session: Session | None, prompt: Prompt, cached_tokens: int
) -> Mapping[str, object] | None:
    """Where and how `prompt` leaves what `session` was asked last; None: it is no miss.

    `{"kind": "evicted"}`: it leaves nothing, but the state of the session's end is gone.
    """
    if session is None or session.wording is None:
        return None
    found = find_break(session.wording, session.answer, prompt)
    if found is not None:
        return {"message": found.message, "byte": found.byte, "kind": found.kind.value}
    if cached_tokens < session.journal.processed:
        return {"kind": EVICTED}
    return None


def later_keys(prompt: Prompt | Wording) -> set[str]:
    """What two prompts of one conversation have in common, whatever else was changed."""
    if prompt.outline is None:
        return set()
    kinds = (PartKind.BETWEEN, PartKind.ANSWER)
    return {part.key for part in prompt.outline.parts if part.kind in kinds}
