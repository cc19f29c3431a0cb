"""Files that were damaged, exchanged or forged are refused, and nothing is read past their ends."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import attrs
import msgspec
import pytest

from flashrt.disk import CapsuleDirectory, DiskFault
from flashrt.disk.manifest import FORMAT, Envelope, _digest
from flashrt.disk.names import LOCK, Role, part_file, role
from flashrt.disk.tensors import OURS, _layout, parsed
from tests.disk.capsules import holds, made, opened, put

SMALL, LARGE = made("small", seed=1), made("large", seed=2, blocks=3, kib=2)


@attrs.define
class Scene:
    """A directory with two capsules and a note, as it was before any damage."""

    directory: CapsuleDirectory
    dice: random.Random
    before: dict[str, bytes]

    @classmethod
    def set(cls, folder: Path, seed: int) -> "Scene":
        """With sound files."""
        directory = opened(folder)
        put(directory, SMALL)
        put(directory, LARGE)
        directory.write_note("replay", bytes(1000))
        files = directory.path.iterdir()
        before = {file.name: file.read_bytes() for file in files if file.name != LOCK}
        return cls(directory, random.Random(seed), before)

    def restore(self) -> None:
        """As it was."""
        for name in os.listdir(self.directory.path):
            file = self.directory.path / name
            if file.is_dir() and not file.is_symlink():
                file.rmdir()
            elif name not in {*self.before, LOCK} or not is_plain(file):
                file.unlink()
        for name, content in self.before.items():
            self.put(name, content)

    def put(self, name: str, content: bytes) -> None:
        """A file with other content."""
        file = self.directory.path / name
        file.write_bytes(content)
        file.chmod(0o600)

    def pick(self, *roles: Role) -> str:
        """Any file of these roles."""
        return self.dice.choice(sorted(name for name in self.before if role(name) in roles))

    def any(self) -> str:
        """Any file."""
        return self.pick(Role.MANIFEST, Role.PART, Role.NOTE)


def is_plain(file: Path) -> bool:
    """A regular file, and no link to one."""
    return file.is_file() and not file.is_symlink()


def flipped(scene: Scene) -> str:
    """One bit."""
    name = scene.any()
    content = bytearray(scene.before[name])
    content[scene.dice.randrange(len(content))] ^= 1 << scene.dice.randrange(8)
    scene.put(name, bytes(content))
    return name


def flipped_in_front(scene: Scene) -> str:
    """One bit of the first numbers and names, where it does most."""
    name = scene.any()
    content = bytearray(scene.before[name])
    content[scene.dice.randrange(min(80, len(content)))] ^= 1 << scene.dice.randrange(8)
    scene.put(name, bytes(content))
    return name


def cut(scene: Scene) -> str:
    """Short by any number of bytes."""
    name = scene.any()
    scene.put(name, scene.before[name][: scene.dice.randrange(len(scene.before[name]))])
    return name


def lengthened(scene: Scene) -> str:
    """Something behind."""
    name = scene.any()
    scene.put(name, scene.before[name] + scene.dice.randbytes(scene.dice.randrange(1, 100)))
    return name


def zeroed(scene: Scene) -> str:
    """A page that never came to the disk."""
    name = scene.any()
    content = bytearray(scene.before[name])
    start = scene.dice.randrange(len(content))
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    if bytes(content) == scene.before[name]:
        content[0] ^= 1
    scene.put(name, bytes(content))
    return name


def exchanged(scene: Scene) -> str:
    """Two files of one kind, each under the other's name."""
    kind = scene.dice.choice([Role.PART, Role.MANIFEST])
    one, other = scene.pick(kind), scene.pick(kind)
    while scene.before[one] == scene.before[other]:
        other = scene.pick(kind)
    scene.put(one, scene.before[other])
    scene.put(other, scene.before[one])
    return one


def foreign(scene: Scene) -> str:
    """Something else altogether."""
    name = scene.any()
    kinds = [b"", b"GIF89a", b"{}", b"null", b"[" * 50_000, scene.dice.randbytes(3000)]
    scene.put(name, scene.dice.choice(kinds))
    return name


def missing(scene: Scene) -> str:
    """Gone."""
    name = scene.pick(Role.PART, Role.MANIFEST)
    (scene.directory.path / name).unlink()
    return name


def no_file(scene: Scene) -> str:
    """A link to the very same bytes, a directory, or a pipe that nobody writes."""
    name = scene.any()
    file = scene.directory.path / name
    file.unlink()
    match scene.dice.randrange(3):
        case 0:
            outside = scene.directory.path.parent / "outside"
            outside.write_bytes(scene.before[name])
            file.symlink_to(outside)
        case 1:
            file.mkdir()
        case 2:
            os.mkfifo(file)
    return name


def of_another(scene: Scene) -> str:
    """A manifest of another identity, with its own right checksum, under our name."""
    name = scene.pick(Role.MANIFEST)
    scene.put(name, retold(scene.before[name], identity="other weights"))
    return name


def of_another_version(scene: Scene) -> str:
    """A manifest of another format, with a right checksum."""
    name = scene.pick(Role.MANIFEST)
    form = scene.dice.choice(["flashrt-capsule 0 little", "flashrt-capsule 2 little", ""])
    scene.put(name, retold(scene.before[name], form=form))
    return name


HUGE = (2**31, 2**32 - 1, 2**40, 2**47, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, -1, -(2**63))


def forged(scene: Scene) -> str:
    """A part whose header lies, with the right checksum, in a manifest with the right checksum."""
    name = scene.pick(Role.MANIFEST)
    facts = json.loads(scene.before[name])["capsule"]
    part = scene.dice.choice([facts["state"], *(row["part"] for row in facts["rows"])])
    content = scene.dice.choice([lying_length, lying_entry, lying_whole])(
        scene, scene.before[part["name"]]
    )
    part["name"] = part_file([content])
    part["size_bytes"] = len(content)
    scene.put(part["name"], content)
    scene.put(name, retold(scene.before[name], **facts))
    return name


def lying_length(scene: Scene, content: bytes) -> bytes:
    """A header that is said to be longer, or shorter, than it is."""
    length = scene.dice.choice([*HUGE, 0, 1, 2, len(content), len(content) - 7])
    return (length % 2**64).to_bytes(8, "little") + content[8:]


def lying_entry(scene: Scene, content: bytes) -> bytes:
    """A buffer of another shape or place, or of another dtype than its bytes."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    entry = header[scene.dice.choice(sorted(header))]
    lie = scene.dice.choice(HUGE)
    match scene.dice.randrange(4):
        case 0:
            entry["shape"] = [*entry["shape"], lie]
        case 1:
            entry["data_offsets"][scene.dice.randrange(2)] = lie
        case 2:
            entry["dtype"] = {"F32": "F64", "I64": "I32", "BF16": "F64"}[entry["dtype"]]
        case 3:
            entry["data_offsets"] = [offset + 8 for offset in entry["data_offsets"]]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text + content[end:]


def lying_whole(scene: Scene, content: bytes) -> bytes:
    """A header in good order, of buffers that are longer or shorter than those behind it."""
    end = 8 + int.from_bytes(content[:8], "little")
    entries = parsed(content[:end]).entries
    times = scene.dice.choice([0, 2, 3, 1 << 20, 1 << 38])
    shapes = {name: (OURS[one.dtype], (*one.shape, times)) for name, one in entries.items()}
    return _layout(shapes).header + content[end:]


def misleading(scene: Scene) -> str:
    """A manifest whose numbers lie, with a right checksum."""
    name = scene.pick(Role.MANIFEST)
    facts = json.loads(scene.before[name])["capsule"]
    lie = scene.dice.choice(HUGE)
    match scene.dice.randrange(4):
        case 0:
            facts["position"] = lie
        case 1:
            facts["state"]["size_bytes"] = lie
        case 2:
            scene.dice.choice(facts["rows"])["part"]["size_bytes"] = lie
        case 3:
            facts["rows"].pop()
    scene.put(name, retold(scene.before[name], **facts))
    return name


def retold(manifest: bytes, *, form: str = FORMAT, **changes: object) -> bytes:
    """A manifest with other facts, and a checksum that is right for them."""
    body = msgspec.json.encode(json.loads(manifest)["capsule"] | changes)
    return msgspec.json.encode(Envelope(form, _digest(form, body), msgspec.Raw(body)))


DAMAGES: tuple[Callable[[Scene], str], ...] = (
    *(flipped, flipped_in_front, cut, lengthened, zeroed, exchanged, foreign, missing, no_file),
    *(of_another, of_another_version, forged, misleading),
)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every reading is within its file: more was never asked for, nor room made for it."""
    sizes: list[int] = []
    real = os.readv

    def within(descriptor: int, views: list[memoryview]) -> int:
        asked = sum(view.nbytes for view in views)
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert place + asked <= os.fstat(descriptor).st_size, "read past the end"
        sizes.append(asked)
        return real(descriptor, views)

    monkeypatch.setattr(os, "readv", within)
    return sizes


# Ten thousand take some forty seconds.
@pytest.mark.parametrize(
    "count",
    [pytest.param(300, id="some"), pytest.param(10_000, id="all", marks=pytest.mark.slow)],
)
def test_damaged_files_are_refused(quick_path: Path, reads: list[int], count: int):
    """Whatever was done to them: a DiskFault for what they belong to, and all else is read."""
    scene = Scene.set(quick_path, seed=count)
    for number in range(count):
        damage = DAMAGES[number % len(DAMAGES)]
        name = damage(scene)
        told = f"{number}: {damage.__name__} of {name}"
        directory = opened(quick_path)
        filed = {one.key for one in directory.filed()}
        assert filed <= {"small", "large"}, told
        faults = [call for call in CALLS if not _served(directory, call)]
        assert len(faults) == 1 or (damage is exchanged and len(faults) == 2), told
        if number % 10 == 0:
            directory.prune()
            assert {one.key for one in directory.filed()} <= filed, told
        scene.restore()
    assert len(reads) > count
    assert all(_served(opened(quick_path), call) for call in CALLS)


CALLS = ("small", "large", "replay")


def _served(directory: CapsuleDirectory, call: str) -> bool:
    """Whether it is there as it was written."""
    try:
        if call == "replay":
            return directory.read_note("replay") == bytes(1000)
        return holds(directory, SMALL if call == "small" else LARGE)
    except DiskFault:
        return False


def test_a_file_that_shrinks_while_it_is_read_is_a_fault(quick_path: Path):
    """Its size was asked a moment before."""
    scene = Scene.set(quick_path, seed=0)
    real = os.readv

    def shrinking(descriptor: int, views: list[memoryview]) -> int:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        os.truncate(path, os.lseek(descriptor, 0, os.SEEK_CUR))
        return real(descriptor, views)

    os.readv = shrinking
    try:
        with pytest.raises(DiskFault, match="became shorter"):
            scene.directory.read("small")
    finally:
        os.readv = real
