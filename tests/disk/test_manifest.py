"""The file that makes parts a capsule."""

import json

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.disk.filed import Filed, FiledRow
from flashrt.disk.manifest import (
    FORMAT,
    MANIFEST_BYTES_MAX,
    BadManifest,
    Envelope,
    Manifest,
    _digest,
    decoded,
    encoded,
)
from flashrt.disk.names import part_name
from tests.disk.capsules import Made, capsules, facts


def filed(capsule: Made) -> Manifest:
    """Its manifest; the parts have any names."""
    rows = tuple(
        FiledRow(packed, part_name(f"{i:064x}"), i) for i, (packed, _) in enumerate(capsule.rows)
    )
    return Manifest(
        "id", attrs.evolve(capsule.filed, rows=rows, state_bytes=5), part_name("e" * 64)
    )


def sample(**changes: object) -> Manifest:
    """One with a row block of two ids."""
    rows = (FiledRow(b"12345678", part_name("a" * 64), 100),)
    whole = attrs.evolve(facts("k", position=2), rows=rows, state_bytes=50)
    return Manifest("id", attrs.evolve(whole, **changes), part_name("b" * 64))


def told(**changes: object) -> bytes:
    """The file of `sample` with other facts, and a checksum that is right."""
    inner = json.loads(encoded(sample()))["capsule"] | changes
    body = msgspec.json.encode(inner)
    return msgspec.json.encode(Envelope(FORMAT, _digest(FORMAT, body), msgspec.Raw(body)))


@settings(max_examples=40)
@given(capsules())
def test_a_manifest_is_read_as_it_was_written(capsule: Made):
    """All facts, and the parts with their sizes."""
    manifest = filed(capsule)

    assert decoded(encoded(manifest)) == manifest
    assert len(manifest.parts) == 1 + len(capsule.rows)


@settings(max_examples=40)
@given(st.data(), capsules())
def test_every_flipped_bit_is_seen(data: st.DataObject, capsule: Made):
    """Wherever it is, also in a blank or a name of a field."""
    raw = bytearray(encoded(filed(capsule)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(BadManifest):
        decoded(bytes(raw))


@settings(max_examples=40)
@given(st.data(), capsules())
def test_every_cut_is_seen(data: st.DataObject, capsule: Made):
    """Behind any byte."""
    raw = encoded(filed(capsule))

    with pytest.raises(BadManifest):
        decoded(raw[: data.draw(st.integers(0, len(raw) - 1))])


PART = {"name": part_name("a" * 64), "size_bytes": 1}
ROW = {"ids": "MTIzNDU2Nzg=", "part": PART}


@pytest.mark.parametrize(
    "wrong",
    [
        {"position": -1},
        {"position": 2**64},
        {"position": 10**30},
        {"position": 3},
        {"position": 2.0},
        {"position": True},
        {"pending": 2**31},
        {"turn": None},
        {"state": PART | {"size_bytes": -1}},
        {"state": PART | {"size_bytes": 2**63}},
        {"state": PART | {"name": "../../etc/passwd"}},
        {"state": PART | {"name": part_name("a" * 64) + "\n"}},
        {"state": PART | {"name": part_name("A" * 64)}},
        {"rows": []},
        {"rows": [ROW, ROW]},
        {"rows": [ROW | {"ids": "MTIz"}]},
        {"rows": [ROW | {"ids": "?"}]},
        {"rows": [ROW | {"ids": ""}, ROW]},
        {"lineage": [[1, False]]},
        {"extra": 1},
    ],
    ids=str,
)
def test_facts_that_cannot_be_are_refused_whatever_their_checksum(wrong: dict[str, object]):
    """A right checksum is no reason to believe a number."""
    decoded(told())

    with pytest.raises(BadManifest):
        decoded(told(**wrong))


def test_another_format_is_refused_by_its_name():
    """Whoever made it may read it; we do not guess."""
    body = msgspec.json.encode({})
    old = msgspec.json.encode(Envelope("flashrt-capsule 0", "", msgspec.Raw(body)))

    with pytest.raises(BadManifest, match="is of format 'flashrt-capsule 0'; this is"):
        decoded(old)


@pytest.mark.parametrize("raw", [b"", b"null", b"{}", b"[" * 100_000, b'{"format":' * 50_000])
def test_what_is_no_manifest_is_refused(raw: bytes):
    """Also what would lead a reader too deep."""
    with pytest.raises(BadManifest, match="is no manifest"):
        decoded(raw)


def test_a_manifest_is_not_long():
    """It is refused before it is read as JSON."""
    with pytest.raises(BadManifest, match="at most 67,108,864"):
        decoded(bytes(MANIFEST_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "facts",
    [{"saved_at": float("nan")}, {"position": 3}, {"namespace": "\ud800"}, {"turn": -1}],
    ids=str,
)
def test_what_could_not_be_read_again_is_not_written(facts: dict[str, object]):
    """A refusal at once is better than a torn capsule later."""
    with pytest.raises(BadManifest):
        encoded(sample(**facts))


def test_the_ids_are_those_that_were_processed():
    """A last block may reach further than the state."""
    assert isinstance(sample().filed, Filed)
    assert sample(position=1).filed.packed == b"1234"
