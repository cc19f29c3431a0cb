"""Records that went all the way, with round times."""

from flashrt.fsm.lifecycle import Life
from flashrt.metrics.generation import GenerationStats
from flashrt.metrics.record import RequestRecord

MISS = {"message": 3, "byte": 17, "kind": "answer_text"}
REUSE = {
    "replayed_tokens": 12,
    "miss": MISS,
    "pin": {"pinned_tokens": 64},
    "restore_ms": 1.25,
    "saved_capsules": 2,
}


def drafting():
    """Four steps: the MTP layer was right in 3 of 4, lookup in 5 of 5, and one step had no draft.

    The third step's last ids were cut away by an ending.
    """
    stats = GenerationStats()
    stats.count(tokens=4, drafted=4, accepted=3, drafter="mtp")
    stats.count(tokens=1, drafted=0, accepted=0, drafter="")
    stats.count(tokens=5, drafted=9, accepted=5, drafter="lookup")
    stats.count(tokens=2, drafted=2, accepted=1, drafter="mtp")
    return stats


def finished(**wish):
    """A record that went all the way, with round times."""
    fields = {
        "started_at": 10.5,
        "prefilled_at": 11.0,
        "first_token_at": 11.25,
        "finished_at": 13.0,
        "prompt_ids": tuple(range(100)),
        "cached_tokens": 90,
        "completion_tokens": 40,
        "generation": drafting(),
        "terminal_state": Life.DONE,
        **wish,
    }
    record = RequestRecord("r1", created=0, enqueued_at=10.0, tokenize_ms=1.5)
    for name, value in fields.items():
        setattr(record, name, value)
    return record
