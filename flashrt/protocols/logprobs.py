"""Log-probabilities as OpenAI's two protocols show them."""

import codecs
from collections.abc import Sequence
from typing import Protocol

import msgspec

LOWEST = -9999.0
"""What stands for minus infinity, which JSON does not have."""


class TokenLogprobs(Protocol):
    """What the engine says about one sampled id (`engine.protocol.TokenLogprobs`)."""

    @property
    def chosen(self) -> float: ...
    @property
    def top(self) -> Sequence[tuple[int, float]]: ...


class TokenTexts(Protocol):
    """How ids are written (`chat.tokenizer.Tokenizer`)."""

    def id_to_bytes(self, token_id: int) -> bytes: ...
    def control_literal(self, token_id: int) -> str | None: ...


class TopLogprob(msgspec.Struct):
    """One of the likeliest tokens at a position."""

    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(msgspec.Struct):
    """One sampled token. `bytes`: of characters that are spread over tokens, its part."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """`logprobs` of a chat choice: all sampled tokens in order, thinking, calls and stop included,
    as many as `usage.completion_tokens`."""

    content: list[ContentLogprob]
    refusal: None = None


class TextLogprobs(msgspec.Struct):
    """`logprobs` of a text completion: four lists of one length."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


def chat_logprobs(
    ids: Sequence[int], logprobs: Sequence[TokenLogprobs], texts: TokenTexts
) -> ChatLogprobs:
    """Of some ids in a row."""
    content = []
    for token_id, one in zip(ids, logprobs, strict=True):
        shown = texts.id_to_bytes(token_id)
        top = [_top(texts.id_to_bytes(i), value) for i, value in one.top]
        content.append(ContentLogprob(_text(shown), _finite(one.chosen), list(shown), top))
    return ChatLogprobs(content)


class TextLogprobsWriter:
    """Writes the lists of a text completion piece by piece; knows where in the text it is."""

    def __init__(self, texts: TokenTexts, offset: int) -> None:
        """`offset`: characters in front of the answer, of an echoed prompt."""
        self._texts = texts
        self._offset = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> TextLogprobs:
        """The lists for the ids that come next."""
        written = TextLogprobs([], [], [], [])
        for token_id, one in zip(ids, logprobs, strict=True):
            word = self._word(token_id)
            chosen = _finite(one.chosen)
            written.tokens.append(word)
            written.token_logprobs.append(chosen)
            top = {self._word(i): _finite(value) for i, value in one.top}
            # The sampled token is always among them.
            written.top_logprobs.append({**top, word: chosen})
            written.text_offset.append(self._offset)
            self._move(token_id)
        return written

    def _move(self, token_id: int) -> None:
        if self._texts.control_literal(token_id) is None:
            self._offset += len(self._decoder.decode(self._texts.id_to_bytes(token_id)))

    def _word(self, token_id: int) -> str:
        """A token by itself; part of a character as its bytes, so that no two tokens are one."""
        raw = self._texts.id_to_bytes(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _top(shown: bytes, value: float) -> TopLogprob:
    return TopLogprob(_text(shown), _finite(value), list(shown))


def _text(shown: bytes) -> str:
    return shown.decode(errors="replace")


def _finite(value: float) -> float:
    return max(value, LOWEST)
