"""Log-probabilities as the two protocols write them."""

import json

import attrs
import pytest

from flashrt.chat.deltas import FinishReason, TextDelta
from flashrt.protocols.chat_answer import ChatBody, ChatStream
from flashrt.protocols.completions import CompletionBody, CompletionStream
from flashrt.protocols.logprobs import LOWEST, TextLogprobsWriter, chat_logprobs
from tests.protocols.vocabulary import HEAD, FakeRecord, call, events

WORDS = {1: b"he", 2: b"l", 3: b"\xc3", 4: b"\xa9", 9: b"<|im_end|>"}


class Words:
    """Five tokens: two of text, two halves of one character, and a control token."""

    def id_to_bytes(self, token_id):
        return WORDS[token_id]

    def control_literal(self, token_id):
        return WORDS[token_id].decode() if token_id == 9 else None


@attrs.frozen
class Told:
    chosen: float
    top: tuple[tuple[int, float], ...] = ()


HEAD_WITH_WORDS = attrs.evolve(HEAD, token_texts=Words())
IDS = (1, 2, 3, 4, 9)
TOLD = (
    Told(-0.5, ((1, -0.5), (2, -1.0))),
    Told(-2.0, ((1, -0.1), (9, -3.0))),
    Told(-0.1),
    Told(float("-inf")),
    Told(-0.2),
)


def test_a_chat_token_has_its_text_its_bytes_and_the_likeliest():
    """Half a character shows as U+FFFD and as its byte; minus infinity as a number."""
    content = chat_logprobs(IDS, TOLD, Words()).content
    assert [one.token for one in content] == ["he", "l", "\ufffd", "\ufffd", "<|im_end|>"]
    assert [one.bytes for one in content[:3]] == [[104, 101], [108], [0xC3]]
    assert [(t.token, t.logprob) for t in content[1].top_logprobs] == [
        ("he", -0.1),
        ("<|im_end|>", -3.0),
    ]
    assert content[3].logprob == LOWEST


def test_a_text_token_has_its_place_and_is_among_the_likeliest():
    """Places count characters behind the echo; a half and a control token take none."""
    written = TextLogprobsWriter(Words(), 10).write(IDS, TOLD)
    assert written.tokens == ["he", "l", "bytes:\\xc3", "bytes:\\xa9", "<|im_end|>"]
    assert written.text_offset == [10, 12, 13, 13, 14]
    assert written.top_logprobs[0] == {"he": -0.5, "l": -1.0}
    assert written.top_logprobs[1] == {"he": -0.1, "<|im_end|>": -3.0, "l": -2.0}
    assert written.top_logprobs[2] == {"bytes:\\xc3": -0.1}


@pytest.mark.parametrize(
    ("stream", "fold", "lists"),
    [
        (ChatStream, ChatBody, ("content",)),
        (
            CompletionStream,
            CompletionBody,
            ("tokens", "token_logprobs", "top_logprobs", "text_offset"),
        ),
    ],
)
def test_joined_chunks_tell_what_the_body_tells(stream, fold, lists):
    """Every token once and in order, also of steps that show nothing yet."""
    streamed, folded = stream(HEAD_WITH_WORDS, call()), fold(HEAD_WITH_WORDS, call())
    written = streamed.opening()
    for start, end, text in ((0, 2, "hel"), (2, 3, ""), (3, 5, "\u00e9")):
        deltas = [TextDelta(text)] if text else []
        written += streamed.pieces(deltas, IDS[start:end], TOLD[start:end])
        folded.add(deltas, IDS[start:end], TOLD[start:end])
    *chunks, _ = events(written + streamed.ending(FinishReason.STOP, FakeRecord()))
    (whole,) = json.loads(folded.ending(FinishReason.STOP, FakeRecord()))["choices"]
    told = [c["choices"][0].get("logprobs") for c in chunks]
    for name in lists:
        joined = [one for piece in told if piece for one in piece[name]]
        assert joined == whole["logprobs"][name]
        assert len(joined) == len(IDS)


@pytest.mark.parametrize("fold", [ChatBody, CompletionBody])
def test_without_being_asked_nothing_is_told(fold):
    """`logprobs` is null."""
    body = fold(HEAD, call())
    body.add([TextDelta("a")], [1])
    (choice,) = json.loads(body.ending(FinishReason.STOP, FakeRecord()))["choices"]
    assert choice["logprobs"] is None
