"""Where an operation log is stored: in a file of the user, or with the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from snapshot_plugin.store.files import disk_errors, make_private_dir, replace_file, sync_all, sync_dir, write_all
from snapshot_plugin.store.lock import locked

__all__ = ["LineFile", "OperationLines"]

_LOCK_TIMEOUT = 10.0


@runtime_checkable
class OperationLines(Protocol):
    """Lines in order. Any number of processes may use them at once."""

    def read_lines(self) -> list[bytes]:
        """All lines, oldest first."""

    def append_line(self, line: bytes) -> int:
        """Add a line; durable on return. Returns how many bytes there are."""

    def change_lines(self, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
        """Replace the lines by what *change* returns, while holding the lock."""


class LineFile:
    """Lines in a file. It and its directory are made, private, with the first line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_lines(self) -> list[bytes]:
        """See `OperationLines`."""
        with disk_errors("reading what was done, for undo,"):
            try:
                return self.path.read_bytes().split(b"\n")[:-1]  # what does not end in a line end is torn
            except FileNotFoundError:
                return []

    def append_line(self, line: bytes) -> int:
        """See `OperationLines`."""
        with self._writing():
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                size = os.fstat(fd).st_size
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                write_all(fd, (b"\n" if torn else b"") + line + b"\n")
                sync_all(fd)
            finally:
                os.close(fd)
            if not size:
                sync_dir(self.path.parent)
        return size + len(line) + 1

    def change_lines(self, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
        """See `OperationLines`."""
        if not self.path.exists():
            return
        with self._writing():
            before = self.read_lines()
            after = list(change(before))
            if after != before:
                replace_file(self.path, b"".join(line + b"\n" for line in after))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keep other writers out."""
        with disk_errors("writing down what was done, for undo,"):
            make_private_dir(self.path.parent)
            guard = self.path.with_name(self.path.name + ".lock")
            with locked(guard, session_id="(operation log)", timeout=_LOCK_TIMEOUT):
                yield
