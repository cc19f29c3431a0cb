"""Rows are functions of seed, length and number."""

import numpy as np

from flashrt.demo import DEMO_PATH
from flashrt.demo.training.rows import PROMPT, TEXT, Loader, Rows

JOBS = [[(0, 0, 256), (0, 1, 256)], [(0, 2, 256), (0, 3, 256)]]


def test_rows_are_the_same_whoever_makes_them():
    """Two processes, or none: the same batches in the same order."""
    batches = []
    for workers in (0, 2):
        loader = Loader(DEMO_PATH / "tokenizer.json", workers)
        made = loader.batches(iter(JOBS * 4), 2)
        batches.append([next(made) for _ in JOBS])
        loader.close()
    for (ids, weights), (other_ids, other_weights) in zip(*batches, strict=True):
        assert np.array_equal(ids, other_ids)
        assert np.array_equal(weights, other_weights)


def test_loss_is_taken_on_answers_and_some_on_text():
    """Weights are a prompt's, a text's or 1; the start of an answer is not the model's to say."""
    rows = Rows(DEMO_PATH / "tokenizer.json")
    opening = rows.tokenizer.token_to_id("<|im_start|>")
    seen = set()
    for number in range(20):
        ids, weights = rows.row((1, number, 1024))
        assert ids.shape == weights.shape == (1024,)
        assert (weights[ids == opening] < TEXT).all()
        seen |= set(weights.tolist())
    assert seen == {float(np.float16(PROMPT)), float(np.float16(TEXT)), 1.0}


def test_the_end_of_a_turn_is_the_models_to_say():
    """Behind every answer that is not cut."""
    rows = Rows(DEMO_PATH / "tokenizer.json")
    end = rows.tokenizer.token_to_id("<|im_end|>")
    ids, weights = rows.row((1, 0, 4096))
    said = weights == 1
    ends = np.flatnonzero(said[:-1] & ~said[1:])
    assert len(ends) > 3
    assert (ids[ends] == end).mean() > 0.7  # the others end thoughts in a cut row or border a text
