"""Protections taken out, one at a time and only inside a process that was made to be tortured.

Each of these is called in a child and changes that process for good; the product has no switch for any of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snapshot_plugin.store import files, lock, segments

__all__ = ["Mutation", "no_directory_sync", "no_lock", "no_segment_entry_sync", "no_settling", "no_sync", "nothing"]

Mutation = Callable[[], None]
_patched: Any = setattr


def nothing() -> None:
    """The product as it is."""


def no_sync() -> None:
    """Nothing is ever forced to the disk."""
    for name in ("fsync", "fdatasync"):
        _patched(os, name, lambda _fd: None)


def no_directory_sync() -> None:
    """The entries of directories are not forced to the disk; what is in the files is."""
    for module in (files, segments):
        _patched(module, "sync_dir", lambda _path: None)


def no_segment_entry_sync() -> None:
    """The entry of a new segment is not forced to the disk; those of new directories are."""
    _patched(segments, "sync_dir", lambda _path: None)


def no_settling() -> None:
    """A writer builds on what another one left without making sure that the disk has it."""

    def trust(log: segments.SegmentFiles, _directory: Path, session_id: str) -> None:
        log._ours.setdefault(session_id, set())  # noqa: SLF001 — faults are injected from inside

    _patched(segments.SegmentFiles, "_settle", trust)


def no_lock() -> None:
    """Everybody gets the lock at once."""
    _patched(lock, "_wait", lambda _fd, _session_id, _deadline: None)
