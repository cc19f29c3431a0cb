"""Faults in finding the best ids without all scores."""

from tests.faults.fault import Fault

NARROW = ("tests/engine/test_narrow.py",)
CHOICES = ("tests/engine/test_choices.py",)

FAULTS = (
    Fault(
        "a bound that forgets what was rounded",
        "flashrt/engine/narrow.py",
        "    error = (rows - again).norm(dim=-1) + summing(rows.shape[1]) * length\n",
        "    error = summing(rows.shape[1]) * length\n",
        NARROW,
        "ids whose weights lost most in 8 bits would be left out although they are the best",
    ),
    Fault(
        "a bound that forgets how sums are rounded",
        "flashrt/engine/narrow.py",
        "    error = (rows - again).norm(dim=-1) + summing(rows.shape[1]) * length\n",
        "    error = (rows - again).norm(dim=-1)\n",
        NARROW,
        "an id that is the best by a last digit of a float32 sum alone would be left out",
    ),
    Fault(
        "a bound by the length of the matrix alone",
        "flashrt/engine/narrow.py",
        "    length = torch.maximum(rows.norm(dim=-1), again.norm(dim=-1))\n",
        "    length = rows.norm(dim=-1)\n",
        NARROW,
        "what a row of the model loses in 15 bits is multiplied by the copy, which may be longer",
    ),
    Fault(
        "best ids that belong to no token",
        "flashrt/engine/model.py",
        "self.logits_of(position, count)[:, :limit].max(-1)",
        "self.logits_of(position, count).max(-1)",
        CHOICES,
        "a padding row of the vocabulary would be said",
    ),
    Fault(
        "best ids of rows that a constraint limits",
        "flashrt/engine/hybrid.py",
        "        if free and best_is_all(params):\n",
        "        if best_is_all(params):\n",
        CHOICES,
        "a forced call would say what the model likes instead",
    ),
    Fault(
        "best ids where log-probabilities were asked for",
        "flashrt/engine/choices.py",
        "    return params.logprobs is None and takes_likeliest(params)\n",
        "    return takes_likeliest(params)\n",
        CHOICES,
        "the scores that they are made of would be missing",
    ),
)
