"""Spools that could not be used are kept under a name that nothing reads, such as ``live.aside-1``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from snapshot_plugin.store.files import disk_errors, sync_all, sync_dir, write_all

__all__ = ["copy_aside", "set_aside"]

_NAME: Final = "live"


def set_aside(directory: Path) -> Path | None:
    """Quarantine the spool under another name, and return that name; None if there is no spool.

    For a spool that could not be recovered: the session can continue, and nothing is lost.
    """
    with disk_errors("setting a spool aside"):
        try:
            data = (directory / _NAME).read_bytes()
        except FileNotFoundError:
            return None
        aside = copy_aside(directory, data)
        (directory / _NAME).unlink()
        sync_dir(directory)
        return aside


def copy_aside(directory: Path, data: bytes) -> Path:
    """Keep *data* under the first free name ``live.aside-1``, ``-2``, …, durably."""
    number = 1
    while True:
        aside = directory / f"{_NAME}.aside-{number}"
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1
            continue
        try:
            write_all(fd, data)
            sync_all(fd)
        finally:
            os.close(fd)
        sync_dir(directory)
        return aside
