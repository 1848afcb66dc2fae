"""Being the writer of a project's memory: the kernel lock, held as long as the session lives."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Final

from snapshot_plugin.errors import MemoryReadOnly, SessionLocked
from snapshot_plugin.manager.lease import Lease, Owner, owner_of
from snapshot_plugin.model.times import rfc3339

__all__ = ["Tenure"]

_LEASE: Final = ".lease"


class Tenure:
    """This process's right to write. It ends with `end`, with the process, or when the directory is taken away."""

    def __init__(self, directory: Path, lease: Lease) -> None:
        self._path = directory / _LEASE
        self._lease = lease
        self._identity = self._path.stat()

    @classmethod
    def begin(cls, directory: Path, now: datetime) -> Tenure:
        """Become the writer.

        Raises:
            MemoryReadOnly: another process is; the text says which and since when.
            StoreUnavailable: the disk refused.
        """
        try:
            return cls(directory, Lease.acquire(directory, Owner.this_process(since=now)))
        except SessionLocked:
            raise MemoryReadOnly(f"the memory of {directory.parent} is written by {_who(directory)}") from None

    @property
    def holds(self) -> bool:
        """False once somebody has removed the directory: then the lock guards nothing any more."""
        try:
            return os.path.samestat(self._identity, self._path.stat())
        except OSError:
            return False

    def end(self) -> None:
        """Let the next one write."""
        self._lease.release()


def _who(directory: Path) -> str:
    owner = owner_of(directory)
    if owner is None:
        return "another process, which has just ended"
    return f"process {owner.pid} on {owner.host} since {rfc3339(owner.since)}"
