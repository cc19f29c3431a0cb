"""What the tests of the bundled checkpoint share: its folder, read by others' eyes."""

import json
from functools import cache
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer

from flashrt.demo import DEMO_PATH
from flashrt.demo.tokenizer import BYTE_LETTERS

RANKS = 8192
"""Ids below are the family's; the added tokens follow."""


@cache
def tokenizer() -> Tokenizer:
    """tokenizer.json by the tokenizers library alone."""
    return Tokenizer.from_file(str(DEMO_PATH / "tokenizer.json"))


@cache
def auto_tokenizer() -> Any:
    """The folder by transformers, chat template included."""
    return AutoTokenizer.from_pretrained(DEMO_PATH)


def read(name: str) -> dict[str, Any]:
    """One of the folder's JSON files."""
    return json.loads((DEMO_PATH / name).read_text(encoding="utf-8"))


def ranks() -> dict[bytes, int]:
    """The vocabulary as bytes and ranks, read back from tokenizer.json."""
    bytes_of = {letter: byte for byte, letter in BYTE_LETTERS.items()}
    vocab = read("tokenizer.json")["model"]["vocab"]
    return {bytes(bytes_of[letter] for letter in token): rank for token, rank in vocab.items()}


def rendered(*messages: dict[str, Any], ask: bool = False, **arguments: Any) -> str:
    """The chat template over these messages."""
    return auto_tokenizer().apply_chat_template(
        list(messages), tokenize=False, add_generation_prompt=ask, **arguments
    )
