"""What files in a capsule directory are called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.disk.names import LOCK, Role, manifest_file, note_file, part_file, role, temporary


@given(st.text(), st.text())
def test_every_name_that_we_give_has_its_role(identity: str, key: str):
    """Whatever the words are that it is made of, lone surrogates too."""
    assert role(manifest_file(identity, key)) is Role.MANIFEST
    assert role(note_file(identity, key)) is Role.NOTE
    assert role(part_file([key.encode(errors="surrogatepass")])) is Role.PART
    assert role(temporary()) is Role.TEMPORARY
    assert role(LOCK) is Role.LOCK


@given(st.text(max_size=8), st.text(max_size=8))
def test_no_two_capsules_have_one_name(one: str, other: str):
    """Identity and key are told apart, wherever the one ends."""
    assert (manifest_file(one, other) == manifest_file(other, one)) == (one == other)
    assert manifest_file(one + "x", other) != manifest_file(one, "x" + other)


def test_a_parts_name_does_not_depend_on_how_its_bytes_are_cut():
    """It is the digest of all of them."""
    assert part_file([b"ab", b"", b"c"]) == part_file([b"abc"]) != part_file([b"acb"])


@pytest.mark.parametrize(
    "name",
    [
        *("", "a.json", "capsule-.json", f"capsule-{'g' * 32}.json", f"capsule-{'a' * 32}.json\n"),
        *(f"part-{'A' * 64}.safetensors", f"x{'a' * 32}.tmp", f"{LOCK}~", "model.safetensors"),
    ],
)
def test_any_other_name_is_foreign(name: str):
    """So nothing of anybody else's is taken for ours."""
    assert role(name) is Role.FOREIGN
