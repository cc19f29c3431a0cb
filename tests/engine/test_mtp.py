"""The MTP layer computes what the reference layer computes, and its cache knows no drafts."""

import pytest
import torch

from flashrt.engine import mtp
from flashrt.engine.identity import CODE
from flashrt.engine.protocol import SamplingParams
from flashrt.engine.selfcheck import same_bits
from tests.engine.contract import fill, same_capsule, take
from tests.engine.drafted import DraftedEngine, MtpReference, make_drafted
from tests.engine.models import MIXTURE, PLAIN, Shape, ids, reference

PROMPT = ids(300)
OFF = SamplingParams(draft_tokens=0)
SHAPES = {
    "dense": PLAIN,
    "mixture": MIXTURE,
    "odd heads": Shape(heads=3, kv_heads=1, key_heads=1, value_heads=3),
    "tied": Shape(tied=True),
}


def mtp_rows(shape: Shape, tokens: tuple[int, ...]) -> torch.Tensor:
    """m of every slot, by the reference on the reference's own hidden rows."""
    model = reference(shape)
    with torch.no_grad():
        hidden = model.model(torch.tensor([tokens])).last_hidden_state[0, :-1]
        return MtpReference(model)(torch.tensor(tokens[1:]), hidden)


def drafted_row(engine: DraftedEngine) -> torch.Tensor:
    """Logits [V] of the first draft."""
    seen: list[torch.Tensor] = []
    engine._live.draft(engine.journal[-1], 1, lambda row, _: seen.append(row) or 0)
    return seen[0]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("cuts", [(), (1, 64, 100, 101, 230)], ids=["whole", "cut"])
def test_first_drafts_equal_the_reference(shape, cuts):
    """Logits of the first draft within 2e-4: behind a prompt however cut, and behind decoded ids
    that drafted nothing."""
    engine = make_drafted(shape)
    prompt = PROMPT[:260]
    fill(engine, prompt, cuts)
    answer = take(engine, 40, OFF)
    want = mtp_rows(shape, (*prompt, *answer))
    head = engine._live.model.weights.lm_head
    for back in (0, 7, 38):
        there = len(engine.journal) - 1
        assert there == engine.position
        row = drafted_row(engine)
        torch.testing.assert_close(row, want[there - 1] @ head.T, atol=2e-4, rtol=0)
        engine.rollback(back)


def test_a_longer_draft_feeds_its_own_rows():
    """The second and third draft have the layer's output for a hidden row: within 2e-4."""
    engine = make_drafted()
    fill(engine, PROMPT[:100])
    (pending,) = take(engine, 1, OFF)
    seen: list[torch.Tensor] = []

    def choose(row: torch.Tensor, _: object) -> int:
        seen.append(row)
        return int(row.argmax())

    drafted = engine._live.draft(pending, 3, choose)
    model = reference()
    layer, head = MtpReference(model), model.lm_head.weight
    with torch.no_grad():
        hidden = model.model(torch.tensor([PROMPT[:100]])).last_hidden_state[0]
        following = [*PROMPT[1:100], pending]
        for j in range(3):
            rows = layer(torch.tensor(following), hidden)
            torch.testing.assert_close(seen[j], rows[-1] @ head.T, atol=2e-4, rtol=0)
            hidden = torch.cat((hidden, rows[-1:]))
            following.append(drafted[j])


def cache(engine: DraftedEngine) -> torch.Tensor:
    return torch.cat([row.buffers["mtp_kv"] for row in engine.snapshot().rows], 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_cache_is_filled_for_decoded_ids_in_groups_of_any_size(dtype):
    """Saved after every id, after every 5th, or once for 150: the same bytes."""
    engine = make_drafted(dtype=dtype)
    caches = []
    for every in (1, 5, 150):
        engine.reset()
        fill(engine, PROMPT[:50])
        for _ in range(0, 150, every):
            take(engine, every, OFF)
            last = cache(engine)
        caches.append(last)
    assert caches[0].shape[2] == engine.position - 1
    assert same_bits(caches[0], caches[1])
    assert same_bits(caches[0], caches[2])


def test_a_block_takes_the_row_that_waits_with_it():
    """The first slot of a block is the last row before it with the block's first id: another id
    there changes that slot; a reset in between changes it too."""
    engine, caches = make_drafted(), []
    for first in (7, 8):
        engine.reset()
        fill(engine, PROMPT[:20])
        fill(engine, (first, *PROMPT[21:40]))
        caches.append(cache(engine))
    assert same_bits(caches[0][:, :, :19], caches[1][:, :, :19])
    assert not torch.equal(caches[0][:, :, 19], caches[1][:, :, 19])


def test_drafted_rows_never_reach_a_capsule():
    """Whatever was drafted, and by however much it was wrong, the saved slots are the true ones."""
    engine = make_drafted()
    fill(engine, PROMPT[:60])
    take(engine, 3, OFF)
    before = engine.snapshot()
    for wrong in range(3):
        engine._live.draft(engine.journal[-1], 8, lambda row, drafted, w=wrong: w)
        assert same_capsule(engine.snapshot(), before)
    rest = take(engine, 12, OFF)
    after = engine.snapshot()
    engine.restore(before)
    assert take(engine, 12, OFF) == rest
    assert same_capsule(engine.snapshot(), after)


def test_an_empty_block_start_fills_nothing():
    """One token from nothing completes no slot; the next one completes the first."""
    engine = make_drafted()
    fill(engine, PROMPT[:1])
    assert cache(engine).shape[2] == 0
    fill(engine, PROMPT[1:2])
    assert cache(engine).shape[2] == 1
    assert cache(engine).any()


def test_a_model_without_the_layer_has_none_of_it():
    """No buffer, no drafter of that name; quoting still works."""
    engine = make_drafted(mtp=False)
    fill(engine, PROMPT[:70])
    assert "mtp_kv" not in engine.snapshot().rows[0].buffers
    assert engine.info.drafters == ("lookup",)
    assert make_drafted().info.drafters == ("mtp", "lookup")
    assert make_drafted(draft_tokens_max=0).info.drafters == ()


def test_the_layers_code_is_part_of_the_identity():
    """A capsule made by other code for this layer is not taken."""
    assert mtp in CODE
