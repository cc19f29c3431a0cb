"""Headers of safetensors files, written in one form and read in no other."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import deserialize

from flashrt.disk import Buffers, HostBuffer
from flashrt.disk.parts import Draft
from flashrt.disk.tensors import (
    ALIGNMENT_BYTES,
    HEADER_BYTES_MAX,
    BadBuffers,
    header_length,
    laid_out,
    parsed,
)
from tests.disk.capsules import NAMED_BUFFERS, same


@given(NAMED_BUFFERS)
def test_a_file_is_one_that_safetensors_reads(buffers: Buffers):
    """Names, shapes and bytes, as the library of the format tells them."""
    content = b"".join(Draft.of(buffers).chunks)

    read = {name: (tuple(one["shape"]), bytes(one["data"])) for name, one in deserialize(content)}

    assert read == {name: (one.shape, bytes(one.data)) for name, one in buffers.items()}


@given(NAMED_BUFFERS)
def test_a_layout_is_read_as_it_was_written(buffers: Buffers):
    """And every buffer is aligned to its items."""
    layout = laid_out(buffers)
    data = b"".join(bytes(buffers[name].data) for name in layout.entries)

    again = parsed(layout.header)

    assert again == layout
    assert len(layout.header) % ALIGNMENT_BYTES == 0
    assert same(again.cut(memoryview(data)), buffers)


def header(text: str | dict) -> bytes:
    """A header with its length in front."""
    data = (text if isinstance(text, str) else json.dumps(text)).encode()
    return len(data).to_bytes(8, "little") + data


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}

WRONG = {
    "huge offsets": {"a": {**GOOD, "data_offsets": [0, 2**63]}},
    "huge shape": {"a": {**GOOD, "shape": [2**62, 2**62]}},
    "shape past 64 bits": {"a": {**GOOD, "shape": [10**30]}},
    "negative offset": {"a": {**GOOD, "data_offsets": [-8, 0]}},
    "negative shape": {"a": {**GOOD, "shape": [-2]}},
    "offsets that go back": {"a": {**GOOD, "data_offsets": [8, 0]}},
    "a gap": {"a": {**GOOD, "data_offsets": [8, 16]}},
    "an overlap": {"a": GOOD, "b": GOOD},
    "another size": {"a": {**GOOD, "shape": [3]}},
    "another dtype": {"a": {**GOOD, "dtype": "F64"}},
    "no dtype of ours": {"a": {**GOOD, "dtype": "COMPLEX"}},
    "a float for a length": {"a": {**GOOD, "shape": [2.0]}},
    "a truth for a length": {"a": {**GOOD, "shape": [True]}},
    "an extra field": {"a": {**GOOD, "b": 1}},
    "metadata": {"__metadata__": {"a": "b"}},
    "a list": "[]",
    "no JSON": "{",
    "more behind": '{}{}                                                  ',
    "too many dimensions": {"a": {**GOOD, "shape": [1] * 7 + [2, 1]}},
    "deep JSON": '{"a":' * 40_000,
    "deep lists": '{"a":{"dtype":"F32","shape":' + "[" * 100_000,
    "a name twice": '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
    '"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
    "another spelling": '{ "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_header_that_is_not_as_it_would_be_written_is_refused(wrong: str | dict):
    """One error for all of them, and nothing is allocated by their numbers."""
    with pytest.raises(BadBuffers):
        parsed(header(wrong))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_text_are_no_header(data: bytes):
    """Nor is anything else that is no JSON."""
    with pytest.raises(BadBuffers):
        parsed(len(data).to_bytes(8, "little") + b"{" + data)


@given(st.data(), NAMED_BUFFERS)
def test_any_flipped_bit_of_a_header_is_seen_or_changes_what_it_tells(data, buffers: Buffers):
    """There are no two spellings of one layout."""
    layout = laid_out(buffers)
    place = data.draw(st.integers(8, len(layout.header) - 1))
    flipped = bytearray(layout.header)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))

    with suppress(BadBuffers):
        assert parsed(bytes(flipped)).entries != layout.entries


@pytest.mark.parametrize(
    ("start", "file_bytes"),
    [
        (b"", 0),
        (b"\1\0\0\0", 4),
        (b"\0" * 8, 100),
        (b"\xff" * 8, 100),
        ((93).to_bytes(8, "little"), 100),
        ((HEADER_BYTES_MAX + 1).to_bytes(8, "little"), 1 << 40),
        ((1 << 63).to_bytes(8, "little"), 1 << 40),
    ],
)
def test_a_header_lies_within_its_file_and_is_not_long(start: bytes, file_bytes: int):
    """Its length is the first number that a file tells, and the first that may lie."""
    with pytest.raises(BadBuffers, match="its header says"):
        header_length(start, file_bytes)
    assert header_length((92).to_bytes(8, "little"), 100) == 92


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        (HostBuffer("complex64", (1,), b"12345678"), "is of dtype 'complex64'"),
        (HostBuffer("float32", (2,), b"1234567"), r"of float32 \[2\] has 7 bytes, not 8"),
        (HostBuffer("float32", (), b""), "has 0 bytes, not 4"),
    ],
)
def test_a_buffer_that_does_not_fit_its_shape_is_not_written(buffer: HostBuffer, words: str):
    """The name, the dtype, the shape and both sizes are told."""
    with pytest.raises(BadBuffers, match=words):
        laid_out({"kv": buffer})


def test_more_names_than_a_header_takes_are_refused():
    """What could not be read again is not written."""
    with pytest.raises(BadBuffers, match="a header of"):
        laid_out({"n" * 1000 + str(i): HostBuffer("uint8", (0,), b"") for i in range(1100)})
