"""Builds the tiers of saved states that the settings ask for, sized from what is free."""

import os
import shutil
import time
from pathlib import Path

from flashrt.budget import MIB, disk_budget_bytes, host_budget_bytes
from flashrt.disk import CapsuleDirectory
from flashrt.engine.placement import free_bytes
from flashrt.engine.protocol import Engine, EngineInfo
from flashrt.errors import CannotServe
from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.limits import Limits
from flashrt.settings import Settings
from flashrt.shelf import DiskShelf

HEADROOM_SHARE = 16
"""Of a GPU's budget so much is kept free, so that what is saved next need not wait for a copy."""


def refuse_conflicts(settings: Settings) -> None:
    """Raises CannotServe, before anything that takes time is done."""
    if settings.disk_capsule_dir is None and settings.disk_capsule_budget_mb >= 0:
        raise CannotServe(
            f"--disk-capsule-budget-mb is {settings.disk_capsule_budget_mb}, but there is no "
            "directory that may hold so much; give one with --disk-capsule-dir"
        )


def capsule_store(
    settings: Settings, limits: Limits, engine: Engine, shelf: DiskShelf | None
) -> CapsuleStore:
    """The engine's memory, the host's, which is taken here, and the disk behind `shelf`.

    Raises CannotServe where the host has not what was asked for.
    """
    free, wish_mib = free_bytes("cpu"), settings.host_capsule_budget_mb
    on_gpu = engine.info.on_gpu
    size = host_budget_bytes(wish_mib, free_bytes=free, on_gpu=on_gpu)
    if on_gpu and size:
        size = _pinned_bytes(engine, size, wish_mib, free)
    return CapsuleStore(limits.capsule_budget_bytes, size, engine, shelf)


def _pinned_bytes(engine: Engine, size: int, wish_mib: int, free: int) -> int:
    """Take so much of the host's memory, and say so, since that takes time; what was taken.

    Where nothing was asked for, less will do.
    """
    flag = f"--host-capsule-budget-mb {wish_mib}"
    if wish_mib >= 0 and size > free:
        raise CannotServe(
            f"{flag}: only {free // MIB} MiB of the host's memory are free; ask for less"
        )
    print(f"host      pinning {size // MIB} MiB for saved states", flush=True)
    start = time.monotonic()
    taken = engine.take_host(size)
    if taken < size and wish_mib >= 0:
        raise CannotServe(
            f"{flag}: the system pins only {taken // MIB} MiB (the log says why); ask for that or "
            "less"
        )
    less = "" if taken == size else f", all that the system pins of {size // MIB}"
    print(f"host      {taken // MIB} MiB in {time.monotonic() - start:.1f} s{less}", flush=True)
    return taken


def disk_shelf(settings: Settings, info: EngineInfo) -> DiskShelf | None:
    """The directory of `--disk-capsule-dir`, with its writer thread; None: there is none.

    Raises CannotServe for one that cannot be used.
    """
    if settings.disk_capsule_dir is None:
        return None
    path = Path(settings.disk_capsule_dir)
    directory = CapsuleDirectory(path, info.identity, None)
    directory.budget_bytes = disk_budget_bytes(
        settings.disk_capsule_budget_mb,
        free_bytes=shutil.disk_usage(path).free,
        held_bytes=_size_of(path),
    )
    return DiskShelf(directory)


def headroom_bytes(limits: Limits, info: EngineInfo) -> int:
    """What is kept free of the engine's budget, where copies run beside its work."""
    return limits.capsule_budget_bytes // HEADROOM_SHARE if info.on_gpu else 0


def _size_of(path: Path) -> int:
    """Of the files of a directory in which others may be at work."""
    size = 0
    with os.scandir(path) as files:
        for file in files:
            try:
                size += file.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
    return size
