"""Which files go, decided over listings that were made up."""

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from flashrt.disk.folder import Found
from flashrt.disk.listing import Item, Listing
from flashrt.disk.pruning import ORPHAN_AGE_S, TEMPORARY_AGE_S, Pruning

NOW_S = 10_000.0


def found(name: str, size_bytes: int = 10, age_s: float = 0.0) -> Found:
    """A file."""
    return Found(name, size_bytes, int((NOW_S - age_s) * 1e9), 1, regular=True)


def listing(
    capsules: Mapping[str, tuple[float, Collection[str]]],
    *,
    orphans: Mapping[str, float] = {},
    temporaries: Mapping[str, float] = {},
) -> Listing:
    """Capsules by name, with their age and parts; all files have ten bytes."""
    items = tuple(
        Item(found(name, age_s=age), "id", name, 1, dict.fromkeys(parts, 10))
        for name, (age, parts) in capsules.items()
    )
    parts = {name: found(name) for item in items for name in item.parts}
    parts |= {name: found(name, age_s=age) for name, age in orphans.items()}
    return Listing(items, parts, (), tuple(found(n, 10, a) for n, a in temporaries.items()), ())


def pruning(of: Listing, *, alive: Collection[str] = (), keep: Collection[str] = ()) -> Pruning:
    """A decision over it."""
    return Pruning(of, NOW_S, lambda name: name not in alive, "id", keep)


def test_only_what_is_old_and_of_no_use_goes_by_itself():
    """What another server may just be writing stays."""
    of = listing(
        {"a": (9e9, ["p"])},
        orphans={"young": ORPHAN_AGE_S - 1, "old": ORPHAN_AGE_S + 1, "tomorrow": -1e5},
        temporaries={"new": TEMPORARY_AGE_S - 1, "left": TEMPORARY_AGE_S + 1, "busy": 1e6},
    )
    decided = pruning(of, alive=["busy"])

    decided.useless()

    assert [gone.file for gone in decided.gone] == ["left", "old", "tomorrow"]


def test_orphans_go_first_then_what_was_used_least():
    """With the parts that nobody else refers to, and no more than is needed."""
    of = listing(
        {"new": (1, ["p", "q"]), "old": (9, ["p", "r"]), "mid": (5, ["s"])}, orphans={"o": 0}
    )
    decided = pruning(of)

    assert decided.down_to(80 - 30)

    assert [gone.file for gone in decided.gone] == ["o", "old", "r"]
    assert [gone.key for gone in decided.gone] == [None, "old", None]


def test_what_is_kept_stays_and_may_be_too_much():
    """Then it is said that it does not fit."""
    of = listing({"a": (1, ["p"]), "b": (2, ["q"])}, orphans={"o": 0})
    decided = pruning(of, keep={"a", "p", "q", "o"})

    assert not decided.down_to(30)

    assert [gone.file for gone in decided.gone] == ["b"]


def test_a_key_of_another_identity_is_not_told():
    """It would be taken for one of ours."""
    of = listing({"a": (1, ["p"])})
    decided = Pruning(of, NOW_S, lambda name: True, "another")

    assert decided.down_to(0)

    assert [gone.key for gone in decided.gone] == [None, None]


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=4),
        st.tuples(st.integers(0, 9), st.sets(st.text("xyz", min_size=1, max_size=2), max_size=4)),
        max_size=8,
    ),
    st.integers(0, 300),
)
def test_the_budget_holds_and_what_stays_is_whole(capsules, budget: int):
    """For any sharing: the part of no capsule that stays goes, and those that stay were used
    later than those that went."""
    of = listing(capsules)
    decided = pruning(of)

    assert decided.down_to(budget)

    gone = [one.file for one in decided.gone]
    assert len(gone) == len(set(gone))
    assert of.size_bytes - decided.gone_bytes <= budget
    stay = {name: facts for name, facts in capsules.items() if name not in gone}
    assert not {part for _, parts in stay.values() for part in parts} & set(gone)
    went = [age for name, (age, _) in capsules.items() if name in gone]
    assert max((age for age, _ in stay.values()), default=0) <= min(went, default=9)
