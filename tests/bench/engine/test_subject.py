"""How an engine is driven."""

import pytest

from flashrt.bench.engine.subject import Subject
from flashrt.demo import DEMO_PATH
from flashrt.errors import CannotServe
from tests.bench.engine.subjects import RATES, subject, wishes


def test_prompts_are_cut_as_a_server_cuts_them():
    """At multiples of --chunk-tokens, wherever the state stands."""
    one = subject()
    one.engine.reset()
    one.fill(one.ids(100))

    assert one.cuts(100) == (128, 192)


def test_a_first_id_is_behind_the_whole_prompt():
    """And its time is above 0."""
    one = subject()
    one.engine.reset()

    assert one.timed_first_id(one.ids(70)) > 0
    assert (one.engine.position, len(one.engine.journal)) == (70, 71)


def test_ids_are_of_the_vocabulary():
    """And not the same ones again."""
    one = subject()
    first, second = one.ids(50), one.ids(50)

    assert first != second
    assert all(0 <= id_ < one.config.vocab_size for id_ in (*first, *second))


def test_a_window_beyond_the_models_is_refused_before_weights_are_made():
    """With both numbers, and the way out."""
    with pytest.raises(CannotServe, match=r"40960 tokens, and this needs 50000.*--context"):
        Subject.of(wishes(shape="tiny"), 50_000)


def test_keys_and_values_may_be_kept_in_8_bits():
    """The engine's are, its name says so, and the bound counts what is read."""
    narrow, wide = Subject.of(wishes(kv_cache_dtype="fp8"), 128), subject()

    assert narrow.engine.info.kv_dtype == "float8_e4m3fn"
    assert narrow.engine.info.model_name.endswith("random weights, keys and values in fp8")
    capsules = [one.capsule_of(70) for one in (narrow, wide)]
    rows = [capsule.rows[0].block_bytes for capsule in capsules]
    assert 4 * rows[0] == rows[1]
    bounds = [one.bounds(RATES) for one in (narrow, wide)]
    grown = [b.step_bytes(1, 70) - b.step_bytes(1, 0) for b in bounds]
    mtp = [b.draft_bytes(69) - b.draft_bytes(0) for b in bounds]
    assert [one + other for one, other in zip(grown, mtp, strict=True)] == rows


def test_a_checkpoint_can_be_measured():
    """Its vocabulary and layers are those of its config."""
    demo = Subject.of(wishes(model=str(DEMO_PATH), shape=None), 128)

    assert demo.engine.info.model_name == "the bundled demo"
    assert len(demo.capsule_of(70).tokens) == 70
