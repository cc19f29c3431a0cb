"""Lines for people hold every number."""

import attrs

from flashrt.inspect.contents import Contents, Share
from flashrt.inspect.needs import Demand, Window
from flashrt.inspect.report import lines

CONTENTS = Contents(
    model="a/model",
    architecture="dense",
    layers=64,
    linear_attention_layers=48,
    full_attention_layers=16,
    hidden_size=5120,
    vocabulary=248320,
    tied_embeddings=False,
    context_tokens=262144,
    tokenizer="248077 tokens",
    template="7000 characters in chat_template.jinja",
    mtp="bf16",
    shares=(Share("embedding", "bf16", 1, 2_542_796_800), Share("MTP layer", "bf16", 8, 3_500)),
    notes=("something is left out",),
)
WINDOW = Window(32768, 18 * 10**9, 2 * 10**9, 900 * 10**6, 2 * 10**9, 22_900_000_000, True)
DEMAND = Demand("cuda", "bfloat16", "bfloat16", 24 * 10**9, 2048, (WINDOW,), 70656)


def test_every_fact_stands_in_a_line():
    """Sizes with their unit, and a line for each note."""
    text = "\n".join(lines(CONTENTS, DEMAND))
    for fact in (
        *("a/model: dense, 64 layers (48 linear attention, 16 full)", "262144 tokens", "248077"),
        *("yes, bf16", "note       something is left out", "2.54 GB", "3.50 kB", "22.90 GB"),
        *("900.00 MB", "24.00 GB available", "fits", "beside one saved state: 70656 tokens."),
    ):
        assert fact in text


def test_tables_are_aligned():
    """Words to the left, numbers to the right."""
    told = list(lines(CONTENTS, DEMAND))
    head = next(line for line in told if line.startswith("part"))
    rows = told[told.index(head) + 1 :][:3]
    assert {len(row) for row in rows} == {len(head)}
    assert all(row.index("bf16") == head.index("stored as") for row in rows[:2])


def test_the_other_cases_have_words_of_their_own():
    """A tied head, no MTP layer, a window too long, nothing that fits, the model's whole window."""
    tied = attrs.evolve(CONTENTS, tied_embeddings=True, mtp="")
    much = attrs.evolve(DEMAND, longest=None, windows=(attrs.evolve(WINDOW, fits=False),))
    text = "\n".join(lines(tied, much))
    assert "248320 output rows (tied)" in text
    assert "no: nothing but prompt lookup drafts" in text
    assert "too much" in text
    assert "No window fits beside one saved state" in text
    assert ", as bfloat16, prompts read" in text
    narrow = "\n".join(lines(CONTENTS, attrs.evolve(DEMAND, kv_dtype="float8_e4m3fn")))
    assert "as bfloat16 with keys and values in float8_e4m3fn, prompts read" in narrow
    whole = "\n".join(lines(CONTENTS, attrs.evolve(DEMAND, longest=262144)))
    assert "262144 tokens (the model's own)." in whole
