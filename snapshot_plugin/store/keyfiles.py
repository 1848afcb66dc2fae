"""Storage for the small files of a keychain: the interface, and its usual implementation, a directory."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from snapshot_plugin.errors import SessionLocked, SnapshotCorrupted
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.system.files import disk_errors, make_private_dir, replace_file, sync_dir, try_lock, unlock

__all__ = ["KeyDirectory", "KeyFiles"]

_MAX_BYTES = 2**20
_BACKUP = "restore the store's keys from a backup"


class KeyFiles(Protocol):
    """A handful of small files. Each change is durable on return, and whole."""

    def names(self) -> list[str] | None:
        """The file names; None if there are no keys."""

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, or None if it is not there."""

    def stamp(self, name: str) -> object:
        """A value that changes when the file is replaced, for next to no cost; None where there is none."""

    def create(self, files: Mapping[str, bytes]) -> bool:
        """Create all of *files* atomically; False, with nothing changed, if keys exist."""

    def changing(self) -> AbstractContextManager[None]:
        """Hold the lock on the keys, or raise `SessionLocked`; `write` and `remove` are called inside it."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file; one with the same name is replaced."""

    def remove(self, name: str) -> None:
        """Remove a file."""


class KeyDirectory:
    """`KeyFiles` in a directory that only its owner can enter."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str] | None:
        """See `KeyFiles`."""
        try:
            return [path.name for path in self._path.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, name: str) -> bytes | None:
        """See `KeyFiles`."""
        with disk_errors("reading it"), contextlib.suppress(FileNotFoundError):
            # Not through a link, and without waiting for a pipe: other users may have planted one.
            fd = os.open(self._path / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
                    raise SnapshotCorrupted("it is not a file of ours", hint=_BACKUP)
                return os.read(fd, _MAX_BYTES)
            finally:
                os.close(fd)
        return None

    def stamp(self, name: str) -> object:
        """See `KeyFiles`. A replaced file has another inode."""
        try:
            status = os.stat(f"{self._path}/{name}")  # noqa: PTH116 — every save of an encrypted store comes here
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def create(self, files: Mapping[str, bytes]) -> bool:
        """See `KeyFiles`."""
        draft = self._path.with_name(f"{self._path.name}.{new_id()}.tmp")
        try:
            make_private_dir(draft)
            for name, data in files.items():
                replace_file(draft / name, data)
            created = _moved(draft, self._path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync_dir(self._path.parent)
        return created

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """See `KeyFiles`."""
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not try_lock(fd):
                raise SessionLocked(
                    f"another process is changing the keys in {self._path}", hint="try again in a moment"
                )
            yield
        finally:
            unlock(fd)

    def write(self, name: str, data: bytes) -> None:
        """See `KeyFiles`."""
        replace_file(self._path / name, data)

    def remove(self, name: str) -> None:
        """See `KeyFiles`."""
        (self._path / name).unlink()
        sync_dir(self._path)


def _moved(draft: Path, directory: Path) -> bool:
    """Move *draft* into place; False if something exists there."""
    try:
        draft.rename(directory)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True
