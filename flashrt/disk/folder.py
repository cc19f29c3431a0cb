"""A private directory and the files in it: every call to the system that the disk room makes.

Nothing is followed: what is a link, a pipe or a directory where a file belongs is refused. Whatever
the system says no to is a DiskFault that names the file.
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs

from flashrt.disk.names import LOCK, temporary
from flashrt.errors import DiskFault

PIECE_BYTES = 4 << 20
"""Written and read at once; a hash of so much is not noticed by other threads."""

LOCK_WAIT_S, LOCK_POLL_S = 10.0, 0.005
"""Whoever changes the directory holds its lock for milliseconds."""

T = TypeVar("T")
Chunk = bytes | bytearray | memoryview


@attrs.frozen
class Found:
    """One entry of the directory. `used_ns`: its time of change, which reading a capsule renews."""

    name: str
    size_bytes: int
    used_ns: int
    inode: int
    regular: bool


@attrs.frozen
class OpenFile:
    """A regular file that is open for reading."""

    name: str
    size_bytes: int
    inode: int
    descriptor: int
    folder: "Folder"

    def into(self, view: memoryview) -> None:
        """Fill `view` with the next bytes. Raises DiskFault where there are not so many."""
        while view:
            with self.folder.naming(self.name, "read"):
                count = os.readv(self.descriptor, [view])
            if not count:
                raise DiskFault(f"{self.folder.path / self.name}: it became shorter")
            view = view[count:]


@attrs.frozen
class Folder:
    """The directory, open. `descriptor` stands for it whatever becomes of its name."""

    path: Path
    descriptor: int

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["Folder"]:
        """The directory as it is now. Raises DiskFault if it is not there, or not private."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with _refusing(path, "opened"):
            descriptor = os.open(path, flags)
        try:
            with _refusing(path, "looked at"):
                facts = os.fstat(descriptor)
            if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
                raise DiskFault(f"{path} is not private to this user any more (0700)")
            yield cls(path, descriptor)
        finally:
            os.close(descriptor)

    def naming(self, name: str, done: str) -> AbstractContextManager[None]:
        """What the system says no to, as a DiskFault about a file: it could not be `done`."""
        return _refusing(self.path / name, done)

    # -- reading -----------------------------------------------------------------------------------

    def entries(self) -> list[Found]:
        """What is there, in no order."""
        found: list[Found] = []
        with self.naming("", "listed"):
            for name in os.listdir(self.descriptor):
                one = self.entry(name)
                if one is not None:
                    found.append(one)
        return found

    def entry(self, name: str) -> Found | None:
        """The entry of that name, not followed; None: there is none."""
        with self.naming(name, "looked at"):
            try:
                facts = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            except FileNotFoundError:
                return None
        regular = stat.S_ISREG(facts.st_mode)
        return Found(name, facts.st_size, facts.st_mtime_ns, facts.st_ino, regular)

    @contextmanager
    def reading(self, name: str) -> Iterator[OpenFile]:
        """A regular file, open."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with self.naming(name, "opened"):
            descriptor = os.open(name, flags, dir_fd=self.descriptor)
        try:
            with self.naming(name, "looked at"):
                facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise DiskFault(f"{self.path / name} is no regular file")
            yield OpenFile(name, facts.st_size, facts.st_ino, descriptor, self)
        finally:
            os.close(descriptor)

    def content(self, name: str, bytes_max: int) -> bytes:
        """A whole small file; of one that is larger than `bytes_max` a byte more than that."""
        with self.reading(name) as file:
            data = bytearray(min(file.size_bytes, bytes_max + 1))
            file.into(memoryview(data))
        return bytes(data)

    # -- writing -----------------------------------------------------------------------------------

    @contextmanager
    def written(self, chunks: Iterable[Chunk], now_s: float) -> Iterator[str]:
        """The name of a new temporary file of these bytes, on the disk; gone at the end unless it
        was renamed. Its lock tells others that somebody works on it."""
        name = temporary()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self.naming(name, "made"):
            descriptor = os.open(name, flags, 0o600, dir_fd=self.descriptor)
        try:
            with self.naming(name, "written"):
                os.fchmod(descriptor, 0o600)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                for chunk in chunks:
                    _write_all(descriptor, memoryview(chunk))
                os.utime(descriptor, ns=(_ns(now_s), _ns(now_s)))
                os.fsync(descriptor)
            yield name
        finally:
            _quietly(os.close, descriptor)
            # Renamed, as it should be; or the next prune finds it.
            _quietly(partial(os.unlink, dir_fd=self.descriptor), name)

    def rename(self, old: str, new: str) -> None:
        """Give a file its name, in the place of what had it."""
        with self.naming(new, "named"):
            os.rename(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def sync(self) -> None:
        """What was renamed stays so, whatever happens to the machine."""
        with self.naming("", "synced"):
            os.fsync(self.descriptor)

    def touch(self, name: str, now_s: float) -> None:
        """The file counts as used now."""
        with self.naming(name, "touched"):
            times = (_ns(now_s), _ns(now_s))
            os.utime(name, ns=times, dir_fd=self.descriptor, follow_symlinks=False)

    def remove(self, name: str) -> bool:
        """Let go of a file, link or empty directory; whether it was there."""
        with self.naming(name, "removed"):
            try:
                os.unlink(name, dir_fd=self.descriptor)
            except FileNotFoundError:
                return False
            except IsADirectoryError:
                os.rmdir(name, dir_fd=self.descriptor)
        return True

    # -- sharing -----------------------------------------------------------------------------------

    @contextmanager
    def locked(self, *, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Nobody else changes what is named here. Raises DiskFault if that takes too long."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with self.naming(LOCK, "opened"):
            descriptor = os.open(LOCK, flags, 0o600, dir_fd=self.descriptor)
        try:
            deadline = time.monotonic() + wait_s
            while not self._taken(LOCK, descriptor):
                if time.monotonic() >= deadline:
                    raise DiskFault(f"{self.path} has been locked by another for {wait_s:g} s")
                time.sleep(LOCK_POLL_S)
            yield
        finally:
            os.close(descriptor)

    def is_abandoned(self, name: str) -> bool:
        """Whether nobody works on a temporary file, or it is none at all."""
        try:
            with self.reading(name) as file:
                return self._taken(name, file.descriptor)
        except DiskFault:
            return True

    def _taken(self, name: str, descriptor: int) -> bool:
        """Take the lock of an open file, if nobody holds it; whether that worked."""
        with self.naming(name, "locked"):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True


@contextmanager
def _refusing(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskFault(f"{path} could not be {done}: {error.strerror}") from error


def _write_all(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view[:PIECE_BYTES]) :]


def _quietly(call: Callable[[T], object], what: T) -> None:
    """The bytes are on the disk by now, or were given up."""
    with suppress(OSError):
        call(what)


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
