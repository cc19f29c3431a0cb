"""Builds the tiers of saved states that the settings ask for, sized from what is free."""

import os
import shutil
from pathlib import Path

from flashrt.budget import disk_budget_bytes, host_budget_bytes
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
    """The engine's memory, the host's, and the disk behind `shelf`."""
    host = host_budget_bytes(
        settings.host_capsule_budget_mb,
        free_bytes=free_bytes("cpu"),
        on_gpu=engine.info.on_gpu,
    )
    return CapsuleStore(limits.capsule_budget_bytes, host, engine, shelf)


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
