"""Durable file operations. Each one is on disk when it returns, or has raised."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from snapshot_plugin.errors import StoreUnavailable

__all__ = [
    "disk_errors",
    "make_private_dir",
    "replace_file",
    "sync_all",
    "sync_data",
    "sync_dir",
    "sync_file",
    "unavailable",
    "write_all",
]

_FULL_SYNC = 51
"""macOS F_FULLFSYNC: there, fsync alone stops at the drive's cache."""


class disk_errors:  # noqa: N801 — used like the functions of contextlib, and faster: every save passes here
    """Turn an OSError into `StoreUnavailable` that says what was being done."""

    __slots__ = ("_doing", "_session_id")

    def __init__(self, doing: str, *, session_id: str | None = None) -> None:
        self._doing, self._session_id = doing, session_id

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, StoreUnavailable):
            raise unavailable(self._doing, error, self._session_id) from error


def unavailable(doing: str, error: OSError, session_id: str | None = None) -> StoreUnavailable:
    """The error that says what was being done."""
    return StoreUnavailable(f"{doing} failed: {error.strerror or error}", session_id=session_id)


def sync_data(fd: int) -> None:
    """Force the bytes of a file that has its place to the disk itself. The cheapest sync for a save."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        sync_all(fd)


def sync_all(fd: int) -> None:
    """Force a new file, or the entries of a directory, to the disk itself."""
    if hasattr(os, "fdatasync"):
        os.fsync(fd)
        return
    try:  # macOS
        fcntl.fcntl(fd, _FULL_SYNC)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        os.fsync(fd)  # as far as a network volume goes


def sync_dir(path: str | Path) -> None:
    """Force a directory's entries to disk: without it a new file may be gone after a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_all(fd)
    finally:
        os.close(fd)


def sync_file(path: str) -> None:
    """Force to disk what others wrote to the file at *path*. A link there is refused."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        sync_all(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte; the system may take fewer at a time than it was given."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def make_private_dir(path: Path) -> None:
    """Create a directory (and its parents) that only its owner can enter, durably.

    Existing directories are not changed.
    """
    if path.is_dir():
        return
    make_private_dir(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        sync_dir(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()  # left there, it would pass for durable
        raise


def replace_file(path: Path, data: bytes) -> None:
    """Replace *path* atomically: a crash leaves the old content or the new, never a mixture."""
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
        sync_all(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(fd)
    temporary.rename(path)
    sync_dir(path.parent)
