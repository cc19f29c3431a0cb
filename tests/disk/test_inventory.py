"""What `flashrt capsules` tells."""

import attrs
import pytest

from flashrt.disk.filed import Gone
from flashrt.disk.folder import Folder
from flashrt.disk.inventory import Inventory, age, gone_lines, mib, printable
from flashrt.disk.listing import Listings
from tests.disk.capsules import made, opened, put


@pytest.fixture
def inventory(quick_path) -> Inventory:
    """Two capsules that share a block, one of them with a damaged one."""
    directory = opened(quick_path)
    put(directory, made("a", blocks=1))
    filed = put(directory, made("b", blocks=2))
    with Folder.opened(directory.path) as folder:
        listing = Listings().look(folder)
    damaged = {filed.rows[1].name: "no good"}
    return Inventory.taken("/capsules", listing, damaged, now_s=1000.0 + 7300)


def test_every_capsule_is_told_with_why_it_is_not_whole(inventory: Inventory):
    """Its files are counted whole for each, and once in all."""
    a, b = sorted(inventory.capsules, key=lambda row: row.key)

    assert (a.tokens, a.age_s, a.fault) == (7, 7300.0, None)
    assert b.fault.endswith("is no good")
    assert not inventory.is_sound
    assert inventory.bytes < a.bytes + b.bytes
    assert attrs.evolve(inventory, capsules=(a,)).is_sound
    assert not attrs.evolve(inventory, capsules=(a,), damaged_notes=("n",)).is_sound


def test_the_table_has_a_line_for_each_and_one_for_all(inventory: Inventory):
    """Columns stand below each other."""
    head, *rows, last = inventory.lines()

    assert head.split() == ["capsule", "tokens", "MiB", "unused", "for", "identity", "state"]
    assert [row[head.index("state") :].split()[0][:4] for row in sorted(rows)] == ["whol", "part"]
    assert last.startswith("1 whole, 1 not; ")
    (empty,) = attrs.evolve(inventory, capsules=()).lines()
    assert empty.startswith("0 whole, 0 not; ")


def test_what_went_is_told_file_by_file():
    """With the reason, and the sum."""
    gone = [Gone("a\x1b[2J", "not ours", 1 << 20), Gone("b", "damaged", 1 << 20)]

    assert list(gone_lines(gone)) == [
        "a\\x1b[2J: not ours",
        "b: damaged",
        "2 files went, 2.0 MiB",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ä b", "ä b"),
        ("a\nb", r"a\nb"),
        ("\x1b", r"\x1b"),
        ("\udcff", r"\xff"),
        ("\u202e", r"\u202e"),
    ],
)
def test_a_name_cannot_give_orders_to_a_terminal(text: str, shown: str):
    """Nor turn letters round; a name that is no text is shown by its bytes."""
    assert printable(text) == shown


def test_sizes_and_ages_are_for_people():
    """In the largest unit of which there is one."""
    assert (mib(1 << 20), mib(5 << 30)) == ("1.0", "5,120.0")
    assert [age(s) for s in (0, 59, 60, 7200, 200_000)] == ["0 s", "59 s", "1 min", "2 h", "2 d"]
