"""The right to write a memory: a kernel lock that the first writer keeps until it ends, and that ends with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from snapshot_plugin.errors import MemoryReadOnly
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.memory.files import MemoryFiles
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.files import disk_errors, write_all

__all__ = ["HeldElsewhere", "WriterLock"]

_FILE: Final = ".lease"
_LONGEST: Final = 64 * 1024


class HeldElsewhere(MemoryReadOnly):
    """Another process writes. `owner` says which, and where it can be asked; None if it has just ended."""

    def __init__(self, message: str, owner: Owner | None) -> None:
        super().__init__(message)
        self.owner = owner


class WriterLock:
    """This process's right to write. Freed by `release`, or by the end of the process."""

    def __init__(self, files: MemoryFiles) -> None:
        self.control: str | None = None
        """The socket where this process takes changes of others."""
        self._files = files
        self._fd = -1

    @property
    def is_held(self) -> bool:
        """Whether this process writes. False once somebody has removed the memory's directory."""
        return self._fd >= 0 and self._files.is_same_file(_FILE, self._fd)

    def acquire(self, now: datetime) -> bool:
        """Take the lock; True if it was not held before.

        Raises:
            HeldElsewhere: another process has it.
            StoreUnavailable: the disk refuses.
        """
        if self.is_held:
            return False
        self.release()
        fd = self._files.opened_file(_FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with disk_errors(f"writing {_FILE}"):
                us = Owner(pid=os.getpid(), host=socket.gethostname(), since=now, control=self.control)
                line = us.model_dump_json()
                os.lseek(fd, 0, os.SEEK_SET)
                write_all(fd, line.encode() + b"\n")
                os.ftruncate(fd, len(line.encode()) + 1)
        except BlockingIOError:
            owner = _owner(fd)
            os.close(fd)
            who = f"process {owner.pid} since {rfc3339(owner.since)}" if owner else "another process"
            raise HeldElsewhere(f"the memory of {self._files.root} is written by {who}", owner) from None
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return True

    def release(self) -> None:
        """Let the next process write. Doing it twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)


def _owner(fd: int) -> Owner | None:
    line = os.pread(fd, _LONGEST, 0).partition(b"\n")[0]
    with contextlib.suppress(ValidationError):
        return Owner.model_validate_json(line)
    return None
