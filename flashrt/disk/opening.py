"""Whether a directory may hold capsules: it is ours, private, and used for nothing else."""

import logging
import os
import stat
from pathlib import Path

from flashrt.disk.folder import Folder
from flashrt.disk.names import LOCK, STRANGERS
from flashrt.errors import CannotServe, DiskFault

log = logging.getLogger("flashrt")

PRIVATE = 0o700


def prepare(path: Path) -> None:
    """Make the directory, 0700, or take one that is there. Raises CannotServe."""
    try:
        made = _make(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise CannotServe(f"{path} is a link to {path.readlink()}: name that") from error
        raise CannotServe(f"{path} cannot hold capsules: {error.strerror}") from error
    try:
        _claim(path, descriptor, made=made)
    except OSError as error:
        raise CannotServe(f"{path} cannot hold capsules: {error.strerror}") from error
    finally:
        os.close(descriptor)
    try:
        with Folder.opened(path) as folder, folder.locked():
            folder.sync()
    except DiskFault as fault:
        raise CannotServe(f"{path} cannot hold capsules: {fault}") from fault


def require(path: Path) -> None:
    """A directory that holds capsules already. Raises CannotServe."""
    if path.is_symlink():
        raise CannotServe(f"{path} is a link to {path.readlink()}: name that")
    if not (path / LOCK).is_file():
        raise CannotServe(f"{path} is no directory of capsules (it has no {LOCK})")


def _make(path: Path) -> bool:
    """Whether it was not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mkdir(path, PRIVATE)
    except FileExistsError:
        return False
    return True


def _claim(path: Path, descriptor: int, *, made: bool) -> None:
    """Nobody else may look in from now on. What belongs to others is left alone."""
    facts = os.fstat(descriptor)
    if facts.st_uid != os.geteuid():
        raise CannotServe(f"{path} belongs to another user (uid {facts.st_uid})")
    names = set(os.listdir(descriptor)) - STRANGERS
    if names and LOCK not in names:
        raise CannotServe(
            f"{path} holds other files ({min(names)[:40]!r} is one): capsules need a directory of "
            "their own; name one that is empty or not there yet"
        )
    mode = stat.S_IMODE(facts.st_mode)
    if mode & 0o077 or made:
        os.fchmod(descriptor, PRIVATE)
        if not made:
            log.warning("%s was open to others (%04o); it is private now (0700)", path, mode)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise CannotServe(f"{path} cannot be written by this user ({mode:04o})")
