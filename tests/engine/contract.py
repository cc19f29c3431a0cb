"""What every engine must do: the protocol's promises as checks over any engine.

`tests/engine/test_contract.py` runs them on each engine. A check takes two fresh engines of the
same weights: one that is tried, and one that serves as the oracle of the path.
"""

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np
import pytest

from flashrt.engine.protocol import (
    Capsule,
    ContextFull,
    Engine,
    EngineMisuse,
    SamplingParams,
)

PROMPT = tuple((7 * i * i + 3 * i + 1) % 61 for i in range(150))
GREEDY = SamplingParams()
SEEDED = SamplingParams(temperature=1.0, top_k=20, seed=11)


def fill(engine: Engine, tokens: Iterable[int], cuts: tuple[int, ...] = ()) -> list[int]:
    """Prefill to the end; the positions reached."""
    return list(engine.prefill(tuple(tokens), cuts))


def take(engine: Engine, count: int, params: SamplingParams = GREEDY) -> list[int]:
    """Decode at least `count` ids and roll what is too many back; the ids."""
    ids: list[int] = []
    for chunk in engine.decode(params):
        ids += chunk.tokens
        if len(ids) >= count:
            break
    if len(ids) > count:
        engine.rollback(len(ids) - count)
    return ids[:count]


ROW_AXES = {"kv": 3, "mtp_kv": 2, "processed": 0}
"""Along which axis the buffers of a block grow."""


def whole(capsule: Capsule) -> dict[str, Any]:
    """All buffers of a capsule by name, the rows in one piece and cut to its position."""
    buffers = dict(capsule.state)
    for name in capsule.rows[0].buffers:
        axis = ROW_AXES[name]
        joined = np.concatenate([_array(row.buffers[name]) for row in capsule.rows], axis)
        count = max(0, capsule.position - (name == "mtp_kv"))
        buffers[name] = joined[(slice(None),) * axis + (slice(count),)]
    return buffers


def _array(buffer: Any) -> np.ndarray:
    """As bits: numpy knows neither bfloat16 nor e4m3."""
    if isinstance(buffer, np.ndarray):
        return buffer
    import torch

    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[buffer.element_size()]
    return buffer.contiguous().cpu().view(kind).numpy()


def same_capsule(one: Capsule, other: Capsule) -> bool:
    """Same ids, same buffers, same bytes; however the rows are cut into blocks."""
    if (one.tokens, one.position) != (other.tokens, other.position):
        return False
    return same_bytes(whole(one), whole(other))


def same_bytes(mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Same names, same bytes."""
    return mine.keys() == theirs.keys() and all(
        _bytes(mine[name]) == _bytes(theirs[name]) for name in mine
    )


def _bytes(buffer: object) -> bytes:
    if hasattr(buffer, "contiguous"):
        import torch

        return buffer.contiguous().cpu().view(torch.uint8).numpy().tobytes()
    return buffer.tobytes()  # type: ignore[attr-defined]


def check_positions(engine: Engine, _oracle: Engine) -> None:
    """After prefill the position is len(journal); after decode and rollback one less."""
    assert fill(engine, PROMPT[:70], (10, 64)) == [10, 64, 70]
    assert (engine.position, tuple(engine.journal)) == (70, PROMPT[:70])

    ids = take(engine, 5)
    assert tuple(engine.journal) == (*PROMPT[:70], *ids)
    assert engine.position == len(engine.journal) - 1 == 74

    engine.rollback(2)
    assert tuple(engine.journal) == (*PROMPT[:70], *ids[:3])
    assert engine.position == 72


def check_prefill_drops_pending(engine: Engine, oracle: Engine) -> None:
    """A prompt that goes on differently from the pending id replaces it."""
    for one in (engine, oracle):
        fill(one, PROMPT[:20])
        take(one, 3)
    other = (oracle.journal[-1] + 1) % 61
    fill(engine, (other, 5))
    oracle.drop_pending()
    fill(oracle, (other, 5))
    assert tuple(engine.journal) == (*oracle.journal[:22], other, 5)
    assert same_capsule(engine.snapshot(), oracle.snapshot())


def check_drop_pending(engine: Engine, oracle: Engine) -> None:
    """Without its pending id, decode chooses from the last hidden row: greedily the same id."""
    for one in (engine, oracle):
        fill(one, PROMPT[:20])
    first = take(engine, 4)
    engine.drop_pending()
    assert engine.position == len(engine.journal) == 23
    assert [*first[:3], *take(engine, 5)] == take(oracle, 8)


def check_restore(engine: Engine, oracle: Engine) -> None:
    """Leaving is free: snapshot, something else, restore, go on = never left."""
    for one in (engine, oracle):
        fill(one, PROMPT[:67])
        take(one, 3, SEEDED)
    capsule = engine.snapshot()
    engine.reset()
    fill(engine, PROMPT[50:140])
    take(engine, 9)
    engine.restore(capsule)
    assert same_capsule(engine.snapshot(), capsule)
    assert take(engine, 20, SEEDED) == take(oracle, 20, SEEDED)
    assert same_capsule(engine.snapshot(), oracle.snapshot())


def check_snapshot_at_a_length(engine: Engine, oracle: Engine) -> None:
    """A capsule by length is the state as it stood there."""
    for one in (engine, oracle):
        fill(one, PROMPT[:60])
        take(one, 2)
    before = oracle.position
    take(oracle, 10)
    capsule = oracle.snapshot(before)
    assert capsule.position == len(capsule.tokens) == before
    engine.drop_pending()
    assert same_capsule(capsule, engine.snapshot())


def check_rollback(engine: Engine, oracle: Engine) -> None:
    """Rolled back = never decoded, for 1 to 64 ids and across a multiple of 64."""
    fill(engine, PROMPT[:100])
    fill(oracle, PROMPT[:100])
    path = take(engine, 70)
    for dropped in (1, 30, 33):
        engine.rollback(dropped)
    rest = 70 - 64
    assert take(oracle, rest) == path[:rest]
    assert same_capsule(engine.snapshot(), oracle.snapshot())
    assert take(engine, 64) == path[rest:] == take(oracle, 64)


def check_rollback_limits(engine: Engine, _oracle: Engine) -> None:
    """Beyond 64 ids, below the last restore, or to nothing: refused, and nothing changed."""
    fill(engine, PROMPT[:100])
    capsule = engine.snapshot()
    ids = take(engine, 10)
    for beyond in (-1, 65):
        with pytest.raises(EngineMisuse):
            engine.rollback(beyond)
    engine.restore(capsule)
    assert take(engine, 10) == ids
    with pytest.raises(EngineMisuse):
        engine.rollback(10)
    assert engine.position == 109
    engine.rollback(9)
    assert engine.position == 100

    engine.reset()
    fill(engine, PROMPT[:3])
    with pytest.raises(EngineMisuse):
        engine.rollback(3)


def check_cuts_are_cold(engine: Engine, oracle: Engine) -> None:
    """A prefill continued from a capsule at a cut = the prefill from 0 with that cut."""
    cuts = (37, 64, 128)
    capsules = []
    for _ in engine.prefill(PROMPT, cuts):
        capsules.append(engine.snapshot())
    whole = engine.snapshot()
    for capsule in capsules[:-1]:
        oracle.restore(capsule)
        at = capsule.position
        fill(oracle, PROMPT[at:], tuple(cut for cut in cuts if cut > at))
        assert same_capsule(oracle.snapshot(), whole)
        assert take(oracle, 5) == take(engine, 5)
        engine.restore(whole)


def check_stop_ids(engine: Engine, oracle: Engine) -> None:
    """A stop id is yielded as the newest id, is not processed, and ends decode."""
    fill(oracle, PROMPT[:40])
    ids = take(oracle, 12)
    stop = ids[8]
    wanted = ids[: ids.index(stop) + 1]
    fill(engine, PROMPT[:40])
    chunks = list(engine.decode(SamplingParams(stop_ids=frozenset({stop}))))
    assert [id_ for chunk in chunks for id_ in chunk.tokens] == wanted
    assert engine.position == 40 + len(wanted) - 1
    with pytest.raises(EngineMisuse):
        next(engine.decode(SamplingParams(stop_ids=frozenset({stop}))))


def check_window(engine: Engine, _oracle: Engine) -> None:
    """Decode ends where the journal fills the window; a prompt beyond it changes nothing."""
    room = engine.info.max_seq
    fill(engine, (PROMPT * 3)[: room - 3])
    assert sum(len(chunk.tokens) for chunk in engine.decode(GREEDY)) == 3
    assert len(engine.journal) == room
    journal = tuple(engine.journal)
    with pytest.raises(ContextFull):
        next(engine.prefill(PROMPT))
    assert tuple(engine.journal) == journal


def check_misuse(engine: Engine, oracle: Engine) -> None:
    """What cannot be honoured is refused before anything changes."""
    with pytest.raises(EngineMisuse):
        next(engine.decode(GREEDY))
    for tokens, cuts in (
        ((), ()),
        ((1, 2), (2,)),
        ((1, 2, 3), (2, 1)),
        ((10**9,), ()),
        ((-1,), ()),
    ):
        with pytest.raises(EngineMisuse):
            next(engine.prefill(tokens, cuts))
    assert (engine.position, tuple(engine.journal)) == (0, ())
    fill(engine, PROMPT[:5])
    open_decode = engine.decode(GREEDY)
    next(open_decode)
    engine.reset()
    with pytest.raises(EngineMisuse):
        next(open_decode)


def check_constraint(engine: Engine, oracle: Engine) -> None:
    """A forced id and a mask bind the row; the constraint sees exactly what was accepted."""
    seen: list[int] = []
    mask = np.zeros(engine.info.vocab_size, dtype=bool)
    mask[[3, 9]] = True

    def constraint(accepted, draft):
        seen.extend(accepted)
        return [(5 if len(seen) % 2 else mask) for _ in range(len(draft) + 1)]

    fill(engine, PROMPT[:10])
    ids: list[int] = []
    for chunk in engine.decode(SEEDED, constraint):
        ids += chunk.tokens
        if len(ids) >= 6:
            break
    assert all(id_ in (3, 5, 9) for id_ in ids)
    assert ids[: len(seen)] == seen


def check_logprobs(engine: Engine, oracle: Engine) -> None:
    """Asked for, there is one per id, of the model's own distribution, whatever was drafted; asking
    changes no id."""
    fill(oracle, PROMPT[:30])
    text = take(oracle, 20, SEEDED)
    seen = []
    for draft_tokens in (None, 0, 4):
        engine.reset()
        fill(engine, PROMPT[:30])
        params = attrs.evolve(SEEDED, logprobs=3, draft_tokens=draft_tokens)
        ids: list[int] = []
        told = []
        for chunk in engine.decode(params):
            assert len(chunk.logprobs) == len(chunk.tokens)
            ids += chunk.tokens
            told += chunk.logprobs
            if len(ids) >= 20:
                break
        assert ids[:20] == text
        seen.append(told[:20])
    assert seen[0] == seen[1] == seen[2]
    for id_, one in zip(text, seen[0], strict=True):
        values = [value for _, value in one.top]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)
        assert one.chosen <= values[0] < 0
        assert dict(one.top).get(id_, one.chosen) == one.chosen
    assert next(engine.decode(SEEDED)).logprobs == ()


def check_sampling_is_positional(engine: Engine, oracle: Engine) -> None:
    """A seed's text does not depend on how a position was reached."""
    fill(oracle, PROMPT[:30])
    text = take(oracle, 30, SEEDED)
    fill(engine, PROMPT[:30])
    take(engine, 12, SEEDED)
    capsule = engine.snapshot()
    engine.reset()
    engine.restore(capsule)
    assert text == [*text[:12], *take(engine, 18, SEEDED)]


def check_drafts_are_free(engine: Engine, oracle: Engine) -> None:
    """Whatever is drafted, also nothing: the same ids and bytes. Chunks say what was drafted."""
    fill(oracle, PROMPT[:70])
    single = attrs.evolve(SEEDED, draft_tokens=0)
    wanted = take(oracle, 40, single)
    for draft_tokens in (None, 0, 1, 4):
        engine.reset()
        fill(engine, PROMPT[:70])
        params = attrs.evolve(SEEDED, draft_tokens=draft_tokens)
        assert take(engine, 40, params) == wanted
        assert same_capsule(engine.snapshot(), oracle.snapshot())

        chunk = next(engine.decode(params))
        assert 1 <= len(chunk.tokens) <= 1 + chunk.drafted
        assert bool(chunk.drafter) == bool(chunk.drafted)
        if draft_tokens is not None:
            assert chunk.drafted <= draft_tokens


CHECKS: list[Callable[[Engine, Engine], None]] = [
    check_positions,
    check_prefill_drops_pending,
    check_drop_pending,
    check_restore,
    check_snapshot_at_a_length,
    check_rollback,
    check_rollback_limits,
    check_cuts_are_cold,
    check_stop_ids,
    check_window,
    check_misuse,
    check_constraint,
    check_logprobs,
    check_sampling_is_positional,
    check_drafts_are_free,
]
