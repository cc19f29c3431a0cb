"""Text to ids and back."""

import json
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.decoders import DecodeStream

from flashrt.chat.tokenizer import IdsToText, Tokenizer
from flashrt.errors import CannotServe
from tests.chat.vocabulary import byte_ids, description, library_tokenizer, tokenizer

CONTROL = sorted(tokenizer().control)
SPELLED = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(CONTROL))).map("".join)
TEXT_IDS = sorted(set(range(tokenizer().vocab_size)) - set(tokenizer().control.values()))
IDS = st.lists(st.integers(0, tokenizer().vocab_size - 1), max_size=30)


def streamed(ids: list[int]) -> tuple[str, list[str]]:
    """All text of a stream, and its control tokens."""
    stream = IdsToText(tokenizer())
    fed = [stream.feed(token_id) for token_id in ids]
    text = "".join(decoded.text for decoded in fed) + stream.flush()
    return text, [decoded.control for decoded in fed if decoded.control]


@given(SPELLED)
def test_plain_text_never_yields_a_control_id(text: str):
    """Whatever text spells, none of its ids is a control token's."""
    assert set(tokenizer().encode_text(text)).isdisjoint(tokenizer().control.values())


@given(SPELLED)
def test_text_without_control_tokens_has_the_librarys_ids(text: str):
    """Both views agree with the library: all of it, and text where it spells no control token."""
    expected = tuple(library_tokenizer().encode(text, add_special_tokens=False).ids)

    assert tokenizer().encode(text) == expected
    if not any(literal in text for literal in CONTROL):
        assert tokenizer().encode_text(text) == expected


def test_control_tokens_are_those_of_the_checkpoint_special_or_not():
    """`<think>` is an added token that is not special; it is a control token all the same."""
    assert tokenizer().encode("<|im_start|><think>") == (
        tokenizer().control["<|im_start|>"],
        tokenizer().control["<think>"],
    )


def test_a_control_token_that_stands_in_the_model_too_is_kept_apart():
    """Some tokenizers list added tokens in the BPE vocabulary; text must not reach them there."""
    made = json.loads(json.dumps(description()))
    made["model"]["vocab"] |= {t["content"]: t["id"] for t in made["added_tokens"]}
    made["model"]["ignore_merges"] = True
    made["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }

    both = Tokenizer(made, {})

    assert both.encode("<think>") == (both.control["<think>"],)
    assert both.control["<think>"] not in both.encode_text("<think>")


def test_added_tokens_of_the_config_count():
    """A control token that only tokenizer_config.json names is one."""
    made = json.loads(json.dumps(description()))
    think = made["added_tokens"].pop()
    assert think["content"] == "</think>"

    loaded = Tokenizer(made, {"added_tokens_decoder": {str(think["id"]): {**think, "id": None}}})

    assert loaded.encode("</think>") == (think["id"],)


def test_half_a_surrogate_pair_is_a_replacement_character():
    """JSON can spell it, UTF-8 cannot: it must not fail."""
    assert tokenizer().encode_text("a\ud83db") == tokenizer().encode_text("a\ufffdb")


@given(IDS)
def test_the_text_of_a_stream_is_the_librarys_text(ids: list[int]):
    """Text ids, whole characters or not, decode as the library decodes them."""
    ids = [i for i in ids if i in TEXT_IDS]

    text, control = streamed(ids)

    assert text == library_tokenizer().decode(ids, skip_special_tokens=False)
    assert not control


@given(st.text(max_size=30))
def test_a_stream_agrees_with_the_librarys_stream(text: str):
    """Over whole characters the library's own streaming decoder says the same in the end."""
    library = DecodeStream(skip_special_tokens=False)
    ids = tokenizer().encode_text(text)

    theirs = "".join(library.step(library_tokenizer(), i) or "" for i in ids)

    assert streamed(list(ids))[0].startswith(theirs)


@given(st.text(max_size=10), st.integers(0, 100))
def test_only_whole_characters_come_out(text: str, cut: int):
    """At every byte, what has come out is a prefix of the text, and all of it that is certain."""
    ids = byte_ids(text)[:cut]
    stream = IdsToText(tokenizer())

    shown = "".join(stream.feed(token_id).text for token_id in ids)

    whole = text.encode()[: len(ids)].decode(errors="ignore")
    assert shown == whole
    assert stream.holds_part == (len(whole.encode()) < len(ids))


@given(IDS)
def test_control_ids_are_reported_and_never_spelled(ids: list[int]):
    """Every control id is told apart in its place; none of them becomes text."""
    text, control = streamed(ids)

    literals = {token_id: literal for literal, token_id in tokenizer().control.items()}
    assert control == [literals[i] for i in ids if i in literals]
    assert not any(literal in text for literal in control if literal not in ids_text(ids))


def ids_text(ids: list[int]) -> str:
    """The text ids alone."""
    return tokenizer().decode([i for i in ids if i in TEXT_IDS])


def test_a_control_id_ends_an_incomplete_character():
    """Half a character in front of a control token is U+FFFD, and comes before it."""
    stream = IdsToText(tokenizer())
    first = byte_ids("東")[0]

    assert stream.feed(first).text == ""
    decoded = stream.feed(tokenizer().control["</think>"])

    assert (decoded.text, decoded.control) == ("\ufffd", "</think>")


def test_an_unknown_id_has_no_text():
    """Padding rows of the embedding have ids that no token has."""
    assert tokenizer().id_to_piece(tokenizer().vocab_size + 5) == ""
    assert tokenizer().id_to_piece(-1) == ""


def test_a_piece_is_text_and_a_count_is_of_plain_text():
    """What the two small helpers say."""
    assert tokenizer().id_to_piece(tokenizer().control["<think>"]) == "<think>"
    assert tokenizer().id_to_piece(byte_ids("ä")[0]) == "\ufffd"
    assert tokenizer().token_count("<think>") == len(tokenizer().encode_text("<think>")) > 1


def test_a_checkpoint_is_loaded_from_its_files(tmp_path):
    """tokenizer.json, and the names in tokenizer_config.json."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(description()))
    config = {"eos_token": {"content": "<|im_end|>"}, "pad_token": "<|endoftext|>", "x_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

    loaded = Tokenizer.load(tmp_path)

    assert loaded.control == tokenizer().control
    assert loaded.named_tokens == {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "has no tokenizer.json"),
        ("{", "cannot be read"),
        (json.dumps(description() | {"decoder": {"type": "Metaspace"}}), "Metaspace"),
        (json.dumps(description() | {"model": {"type": "Unigram"}}), "Unigram"),
        (json.dumps(description() | {"pre_tokenizer": {"type": "Nonsense"}}), "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused_at_start(tmp_path, content: str | None, words: str):
    """The message names the file or the part of it."""
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)

    with pytest.raises(CannotServe, match=words):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("text", ["", "plain", "e\u0301", "\u212b東", "<|im_end|>"])
def test_exact_ids_read_as_the_text_to_the_letter(text: str):
    """Though the vocabulary's own way would normalise it; still never a control id."""
    found = tokenizer().encode_exactly(text)

    assert tokenizer().decode(found) == text
    assert not set(found) & set(tokenizer().control.values())


def test_a_long_text_holds_no_other_thread_up():
    """While ids are looked for in half a megabyte, Python goes on elsewhere: the longest pause of
    another thread is a small part of the time that it takes."""
    words = " ".join(f"w{number}" for number in range(80_000))
    tokenizer().encode_text("warm")
    spans = []

    def encode() -> None:
        start = time.perf_counter()
        tokenizer().encode_text(words)
        spans.append(time.perf_counter() - start)

    helper = threading.Thread(target=encode)
    longest, last = 0.0, time.perf_counter()
    helper.start()
    while helper.is_alive():
        helper.join(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    assert longest < spans[0] / 2
