"""Capsules as files: written whole or not at all, verified before they are used.

Knows files only: no torch, no store, no policy.
"""

from flashrt.disk.directory import CapsuleDirectory
from flashrt.disk.filed import Buffers, Filed, FiledRow, Gone, HostBuffer, ReadRow, Row, Written
from flashrt.errors import DiskFault

__all__ = [
    "Buffers",
    "CapsuleDirectory",
    "DiskFault",
    "Filed",
    "FiledRow",
    "Gone",
    "HostBuffer",
    "ReadRow",
    "Row",
    "Written",
]
