"""`flashrt capsules`: what lies in a directory of capsules, whether it is whole, and letting go."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import msgspec

from flashrt.disk import parts
from flashrt.disk.filed import Gone
from flashrt.disk.folder import Folder
from flashrt.disk.inventory import Inventory, gone_lines, printable
from flashrt.disk.listing import Listing, Listings, read_note
from flashrt.disk.opening import require
from flashrt.disk.pruning import Pruning
from flashrt.disk.tensors import BadBuffers
from flashrt.errors import CannotServe, DiskFault

DAMAGED_STATUS = 1

DESCRIPTION = (
    "Look after a directory of saved states (--disk-capsule-dir): list them, verify every "
    "checksum, or prune what is damaged, orphaned or too much. Servers may go on using it."
)
EPILOG = "Exit status: 0, or 1 if verify finds damage, or 2 with one line that says why."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that can be typed behind `flashrt capsules`."""
    parser.epilog = EPILOG
    parser.add_argument("directory", metavar="DIR", type=Path, help="the directory of capsules")
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="list them; verify every checksum; prune what is damaged or too much",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument(
        "--budget-mb",
        type=_mib,
        metavar="N",
        help="prune: let what was used least go until all of it has at most so many MiB",
    )
    parser.add_argument(
        "--foreign",
        action="store_true",
        help="prune: files go as well whose names are none of ours; directories stay",
    )


def run(asked: Mapping[str, Any]) -> int:
    """Do it; the exit status. Raises CannotServe."""
    if asked["action"] != "prune" and (asked["budget_mb"] is not None or asked["foreign"]):
        raise CannotServe(f"--budget-mb and --foreign are for prune, not {asked['action']}")
    path: Path = asked["directory"].absolute()
    require(path)
    try:
        with Folder.opened(path) as folder:
            return ACTIONS[asked["action"]](folder, asked)
    except DiskFault as fault:
        raise CannotServe(str(fault)) from fault


def _list(folder: Folder, asked: Mapping[str, Any]) -> int:
    inventory = _taken(folder, Listings().look(folder), {})
    _show(inventory, inventory.lines(), asked)
    return 0


def _verify(folder: Folder, asked: Mapping[str, Any]) -> int:
    listing = Listings().look(folder)
    inventory = _taken(folder, listing, _damaged(folder, listing))
    _show(inventory, inventory.lines(), asked)
    return 0 if inventory.is_sound else DAMAGED_STATUS


def _prune(folder: Folder, asked: Mapping[str, Any]) -> int:
    """Damaged parts first: then the manifests that name them are torn."""
    gone: list[Gone] = []
    listings = Listings()
    damaged = _damaged(folder, listings.look(folder))
    with folder.locked():
        for name, why in damaged.items():
            found = folder.entry(name)
            if found is not None and folder.remove(name):
                gone.append(Gone(name, why, found.size_bytes))
        pruning = Pruning(
            listings.look(folder), time.time(), folder.is_abandoned, takes_unread=True
        )
        pruning.useless()
        if asked["budget_mb"] is not None:
            pruning.down_to(asked["budget_mb"] << 20)
        for one in pruning.gone:
            folder.remove(one.file)
    gone += pruning.gone
    if asked["foreign"]:
        gone += _foreign(folder, pruning.listing)
    told = [attrs.evolve(one, file=printable(one.file)) for one in gone]
    answer = {"gone": told, "bytes": sum(one.size_bytes for one in gone)}
    _show(answer, gone_lines(gone), asked)
    return 0


ACTIONS: Mapping[str, Callable[[Folder, Mapping[str, Any]], int]] = {
    "list": _list,
    "verify": _verify,
    "prune": _prune,
}


def _damaged(folder: Folder, listing: Listing) -> dict[str, str]:
    """Parts and notes that are not what their names say, and why. Reads all that is in use."""
    sizes = {name: size for item in listing.whole() for name, size in item.parts.items()}
    damaged: dict[str, str] = {}
    for name in sorted({*sizes, *(found.name for found in listing.notes)}):
        try:
            if name in sizes:
                parts.verify(folder, name, sizes[name])
            else:
                read_note(folder, name)
        except BadBuffers as bad:
            damaged[name] = f"damaged: {bad}"
        except DiskFault as fault:
            if folder.entry(name) is not None:  # else a server has let go of it
                damaged[name] = str(fault)
    return damaged


def _foreign(folder: Folder, listing: Listing) -> list[Gone]:
    """Links go, never what they lead to; a directory is somebody's work."""
    gone = []
    for found in listing.foreign:
        if not _is_directory(folder, found.name) and folder.remove(found.name):
            gone.append(Gone(found.name, "not ours", found.size_bytes))
    return gone


def _is_directory(folder: Folder, name: str) -> bool:
    path = folder.path / name
    return path.is_dir() and not path.is_symlink()


def _taken(folder: Folder, listing: Listing, damaged: Mapping[str, str]) -> Inventory:
    return Inventory.taken(str(folder.path), listing, damaged, time.time())


def _show(answer: object, lines: Iterable[str], asked: Mapping[str, Any]) -> None:
    if asked["json"]:
        _print_json(answer)
    else:
        print(*lines, sep="\n")


def _print_json(answer: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")


def _mib(text: str) -> int:
    if text.isdecimal() and len(text) < 10:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number of MiB")
