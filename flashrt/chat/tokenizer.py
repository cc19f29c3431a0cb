"""Text to ids and back. Control tokens come from the template, never out of somebody's text."""

import codecs
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import tokenizers

from flashrt.errors import CannotServe

# Every batch here is of one text: the threads that the library would start had nothing to do.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

SURROGATES = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """One vocabulary seen in two ways: with its control tokens, and as plain text only.

    A control token is an added token of the checkpoint, whether it calls it special or not
    (`<|im_start|>`, `<think>`, `<tool_call>`). Safe to use from several threads.
    """

    def __init__(self, description: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """`description` is the JSON of tokenizer.json, `config` that of tokenizer_config.json.

        Raises CannotServe where plain text could yield a control id, or ids could not be read.
        """
        _require_byte_level(description)
        added = _added_tokens(description, config)
        self.control: Mapping[str, int] = MappingProxyType({t["content"]: t["id"] for t in added})
        self.named_tokens: Mapping[str, str] = MappingProxyType(_named_tokens(config))
        self._with_control = _build({**description, "added_tokens": added})
        self._text_only = _build(_without_control(description, self.control))
        self._control_of = {token_id: literal for literal, token_id in self.control.items()}
        self._bytes_of: dict[int, bytes] = {}
        self.vocab_size = 1 + max(self._with_control.get_vocab().values())
        for literal in self.control:
            if not self._control_of.keys().isdisjoint(self.encode_text(literal)):
                raise CannotServe(
                    f"tokenizer.json: the plain text {literal!r} is encoded as the control token "
                    "of that name, so any client could write it. Only byte-level BPE vocabularies "
                    "that keep control tokens apart can be served."
                )

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """From a checkpoint directory. Raises CannotServe for a missing or unreadable file."""
        description = read_json(path / "tokenizer.json")
        if description is None:
            raise CannotServe(f"{path} has no tokenizer.json; FlashRT reads no other form.")
        return cls(description, read_json(path / "tokenizer_config.json") or {})

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Ids of plain text; never a control id, whatever the text spells."""
        return _ids(self._text_only, text)

    def encode_exactly(self, text: str) -> tuple[int, ...]:
        """Ids of plain text that read as it to the letter, also where `encode_text` normalises."""
        ids = self.encode_text(text)
        if self.decode(ids) == text:
            return ids
        found = (self._text_only.token_to_id(LETTER_OF_BYTE[byte]) for byte in text.encode())
        return tuple(token_id for token_id in found if token_id is not None)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of text in which control tokens are meant as such."""
        return _ids(self._with_control, text)

    def to_json(self) -> str:
        """The tokenizer with its control tokens, as tokenizer.json describes it."""
        return self._with_control.to_str()

    def token_count(self, text: str) -> int:
        """How many ids plain text has."""
        return len(self.encode_text(text))

    def control_literal(self, token_id: int) -> str | None:
        """How a control token is written; None for the ids of text."""
        return self._control_of.get(token_id)

    def id_to_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes of one id, often not whole characters; none for an unknown id."""
        known = self._bytes_of.get(token_id)
        if known is None:
            known = self._bytes_of[token_id] = self._look_up(token_id)
        return known

    def id_to_piece(self, token_id: int) -> str:
        """One id as text by itself; bytes that are no whole character show as U+FFFD."""
        return self.id_to_bytes(token_id).decode("utf-8", errors="replace")

    def decode(self, ids: Sequence[int]) -> str:
        """Ids as text, control tokens written out."""
        return b"".join(map(self.id_to_bytes, ids)).decode("utf-8", errors="replace")

    def _look_up(self, token_id: int) -> bytes:
        literal = self._control_of.get(token_id)
        if literal is not None:
            return literal.encode()
        piece = self._with_control.id_to_token(token_id) if token_id >= 0 else None
        return bytes(BYTE_OF_LETTER[letter] for letter in piece or "")


@attrs.frozen
class Decoded:
    """What one id adds: text that is certain now, and then the control token if it is one."""

    text: str
    control: str | None = None


class IdsToText:
    """Turns a stream of ids into text, never half a character at a time.

    The bytes of text ids go through an incremental UTF-8 decoder, so what comes out does not depend
    on how characters are spread over ids. Control ids are told apart, not spelled.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_id: int) -> Decoded:
        """Take one id. A control id ends a character that is still incomplete (U+FFFD)."""
        control = self._tokenizer.control_literal(token_id)
        if control is not None:
            return Decoded(self.flush(), control)
        return Decoded(self._decoder.decode(self._tokenizer.id_to_bytes(token_id)))

    def flush(self) -> str:
        """What is left of an incomplete character, as U+FFFD."""
        return self._decoder.decode(b"", final=True)

    @property
    def holds_part(self) -> bool:
        """Whether the first bytes of a character wait for the rest."""
        return bool(self._decoder.getstate()[0])


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if there is none. Raises CannotServe if unreadable."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CannotServe(f"{path} cannot be read: {error}") from error


# ----------------------------------------------------------------------------------------------


def _byte_letters() -> dict[str, int]:
    """The letter with which byte-level BPE writes each byte, back to the byte.

    Bytes that print in Latin-1 stand for themselves; the others follow in order from U+0100.
    """
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printing]
    return {chr(b): b for b in printing} | {chr(0x100 + i): b for i, b in enumerate(others)}


BYTE_OF_LETTER = _byte_letters()
LETTER_OF_BYTE = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}


def _ids(tokenizer: tokenizers.Tokenizer, text: str) -> tuple[int, ...]:
    if not text.isascii():
        text = SURROGATES.sub("\ufffd", text)  # JSON can spell half of a pair, UTF-8 cannot
    # A batch of one: `encode` keeps the interpreter's lock, over a second for a megabyte.
    (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    return tuple(encoding.ids)


def _build(description: Mapping[str, Any]) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(description))
    except Exception as error:  # the library raises bare Exception
        raise CannotServe(f"tokenizer.json cannot be read: {error}") from error


def _require_byte_level(description: Mapping[str, Any]) -> None:
    model = (description.get("model") or {}).get("type")
    decoder = description.get("decoder") or {}
    parts = decoder.get("decoders", []) if decoder.get("type") == "Sequence" else [decoder]
    if model != "BPE" or [part.get("type") for part in parts] != ["ByteLevel"]:
        raise CannotServe(
            f"tokenizer.json: model {model!r} with decoder {decoder.get('type')!r}; only "
            "byte-level BPE, as the Qwen3.5 family has it, can be served."
        )


def _added_tokens(
    description: Mapping[str, Any], config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The added tokens of both files, by id; tokenizer.json wins."""
    later = {int(i): token for i, token in (config.get("added_tokens_decoder") or {}).items()}
    added = {i: {**token, "id": i} for i, token in later.items()}
    added |= {token["id"]: token for token in description.get("added_tokens") or []}
    return [added[i] for i in sorted(added)]


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token`, `eos_token` and their kind: templates may ask for them by name."""
    named = {}
    for name, token in config.items():
        literal = token.get("content") if isinstance(token, dict) else token
        if name.endswith("_token") and isinstance(literal, str):
            named[name] = literal
    return named


def _without_control(description: Mapping[str, Any], control: Mapping[str, int]) -> dict[str, Any]:
    """The same tokenizer with no way to a control token, neither added nor in the model."""
    model = dict(description["model"])
    model["vocab"] = {t: i for t, i in model["vocab"].items() if t not in control}
    model["merges"] = [merge for merge in model["merges"] if _joined(merge) not in control]
    return {**description, "added_tokens": [], "model": model}


def _joined(merge: str | Sequence[str]) -> str:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    return "".join(parts)
