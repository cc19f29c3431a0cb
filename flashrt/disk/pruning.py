"""Which files go: what is of no use to anybody, then what was used least, down to a budget."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator

import attrs

from flashrt.disk.filed import Gone
from flashrt.disk.folder import Found
from flashrt.disk.listing import Item, Listing

ORPHAN_AGE_S = 600.0
"""A part that no capsule refers to may be one that another server is just writing."""

TEMPORARY_AGE_S = 60.0
"""A temporary is locked by whoever writes it, from a moment after it was made."""


@attrs.define
class Pruning:
    """Decides over a listing, and notes what goes in the order in which it has to.

    `keep`: parts and manifests that stay whatever happens. `identity`: whose keys are told.
    While a manifest cannot be read, any part may be one of its own: then no part goes, and so no
    capsule; `takes_unread`: such a manifest goes itself, since a person has asked for it.
    """

    listing: Listing
    now_s: float
    is_abandoned: Callable[[str], bool]
    identity: str | None = None
    keep: Collection[str] = ()
    takes_unread: bool = False
    gone: list[Gone] = attrs.field(factory=list)

    def useless(self) -> None:
        """Torn capsules, parts that nobody refers to for long, temporaries that nobody writes."""
        for item in self.listing.torn():
            if not item.is_unread or self.takes_unread:
                self._go(item.found, item.fault or "torn", item)
        for found in self.listing.temporaries:
            if self._age_s(found) > TEMPORARY_AGE_S and self.is_abandoned(found.name):
                self._go(found, "a temporary that nobody writes")
        for found in self._orphans():
            if self._age_s(found) > ORPHAN_AGE_S:
                self._go(found, "no capsule refers to it")

    def down_to(self, budget_bytes: int) -> bool:
        """Let go of orphans, then of capsules and notes, the longest unused first, until what is
        held fits; whether it does."""
        held = self.listing.size_bytes - self.gone_bytes
        references = self.listing.references()
        for found, item in self._least_used_first():
            if held <= budget_bytes:
                break
            before = self.gone_bytes
            self._evict(found, item, references)
            held -= self.gone_bytes - before
        return held <= budget_bytes

    @property
    def gone_bytes(self) -> int:
        """What their going frees."""
        return sum(gone.size_bytes for gone in self.gone)

    # -- inside ------------------------------------------------------------------------------------

    def _least_used_first(self) -> Iterator[tuple[Found, Item | None]]:
        if self._is_blind:
            return
        gone = {one.file for one in self.gone}
        yield from ((found, None) for found in self._orphans() if found.name not in gone)
        items = [(item.found, item) for item in self.listing.whole()]
        notes = [(found, None) for found in self.listing.notes]
        for found, item in sorted([*items, *notes], key=lambda one: (one[0].used_ns, one[0].name)):
            if found.name not in self.keep:
                yield found, item

    def _evict(self, found: Found, item: Item | None, references: Counter[str]) -> None:
        self._go(found, "there is no room for it", item)
        for name in item.parts if item is not None else ():
            references[name] -= 1
            if not references[name] and name not in self.keep:
                self._go(self.listing.parts[name], "no capsule refers to it any more")

    @property
    def _is_blind(self) -> bool:
        return not self.takes_unread and any(item.is_unread for item in self.listing.items)

    def _orphans(self) -> list[Found]:
        if self._is_blind:
            return []
        referred = {*self.listing.references(), *self.keep}
        return [found for name, found in self.listing.parts.items() if name not in referred]

    def _age_s(self, found: Found) -> float:
        """A file of tomorrow was not made just now either."""
        return abs(self.now_s - found.used_ns / 1e9)

    def _go(self, found: Found, why: str, item: Item | None = None) -> None:
        ours = item is not None and item.identity == self.identity
        size = found.size_bytes if found.regular else 0
        self.gone.append(Gone(found.name, why, size, item.key if item and ours else None))
