"""Entries on disk, and in memory where the disk refuses: what is true of an entry, in one place.

Synchronous and not thread-safe: `Archive` calls it, one call at a time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from snapshot_plugin.memory.evict import Stored, evicted
from snapshot_plugin.memory.files import MemoryFiles
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.names import Name
from snapshot_plugin.errors import NotFound, SnapshotError, StoreUnavailable

__all__ = ["Payload", "Shelf"]


class Payload(NamedTuple):
    """An entry ready to be written: its bytes, and the size that counts against the limit."""

    name: Name
    data: bytes
    size: int


class Shelf:
    """The entries of one project.

    What could not be written or deleted is remembered (`unsaved`), answers reads, and is tried again by `retry`.
    """

    def __init__(self, files: MemoryFiles, limits: Limits) -> None:
        self.files = files
        self.limits = limits
        self.used: dict[str, datetime] = {}
        self.elsewhere = 0
        """The bytes other projects hold."""
        self.unsaved: dict[Name, bytes | None] = {}
        self._index: dict[Name, Stored] = {}
        self._overhead = 0

    # Looking -----------------------------------------------------------------------------------------------

    def look(self, now: datetime) -> dict[Name, Stored]:
        """Every entry there is now, also after people have deleted or added files by hand."""
        index = self.files.scan(self.used)
        self._overhead = self.files.overhead()
        for name, data in self.unsaved.items():
            index.pop(name, None)
            if data is not None:
                index[name] = Stored(name, len(data), now, now)
        self._index = index
        return index

    @property
    def total(self) -> int:
        """The bytes of everything, as of the last look and the writes since."""
        return self._overhead + sum(entry.size for entry in self._index.values())

    @property
    def names(self) -> list[Name]:
        """The entries there are, as of the last look."""
        return list(self._index)

    def saved_at(self, name: Name, default: datetime) -> datetime:
        """When an entry was last written."""
        return self._index[name].saved_at if name in self._index else default

    def __contains__(self, name: Name) -> bool:
        return name in self._index

    def read(self, name: Name) -> Any:
        """The entry's data; `NotFound`, or `SnapshotCorrupted` if its file is damaged."""
        if name in self.unsaved:
            data = self.unsaved[name]
            if data is None:
                raise _missing(name)
            return json.loads(data)
        try:
            return self.files.read(name.file)
        except NotFound:
            raise _missing(name) from None

    # Changing ----------------------------------------------------------------------------------------------

    def put(self, payload: Payload, now: datetime) -> list[Name]:
        """Store an entry; return those that had to go for it. Durable on return.

        Raises:
            LimitExceeded: there is no room. Nothing was changed.
            StoreUnavailable: the disk refused; the entry is kept in memory.
        """
        gone = self._make_room(payload, now)
        self._remember(payload, now)
        try:
            self.files.write(payload.name.file, payload.data)
        except StoreUnavailable:
            self.unsaved[payload.name] = payload.data
            raise
        self.unsaved.pop(payload.name, None)
        self.drop(gone)
        return gone

    def keep_in_memory(self, payload: Payload, now: datetime) -> list[Name]:
        """As `put`, for when there is no disk to try."""
        gone = self._make_room(payload, now)
        self._remember(payload, now)
        self.unsaved[payload.name] = payload.data
        self.drop(gone)
        return gone

    def drop(self, names: Iterable[Name]) -> None:
        """Let go of entries whose time is over. One that cannot be deleted now goes another time."""
        for name in names:
            try:
                self.delete(name)
            except (NotFound, StoreUnavailable):
                self._index.pop(name, None)

    def delete_in_memory(self, name: Name) -> None:
        """As `delete`, for when there is no disk to try: the entry is gone as long as this process lives."""
        self.read(name)
        self._index.pop(name, None)
        self.unsaved[name] = None

    def delete(self, name: Name) -> None:
        """Remove an entry, durably; `NotFound`. `StoreUnavailable`: it is gone as long as this process lives."""
        self._index.pop(name, None)
        was_unsaved = self.unsaved.pop(name, None) is not None
        try:
            self.files.delete(name.file)
        except NotFound:
            if not was_unsaved:
                raise _missing(name) from None
        except StoreUnavailable:
            self.unsaved[name] = None
            raise

    def clear(self) -> None:
        """Remove every entry."""
        self.unsaved.clear()
        self.used.clear()
        self._index.clear()
        self.files.clear()
        self._overhead = self.files.overhead()

    def overdue(self, now: datetime) -> list[Name]:
        """The entries whose time is over, or that are too many."""
        namespaces = {name.namespace for name in self._index}
        return [
            name for namespace in namespaces for name in evicted(namespace, self._index.values(), self.limits, now)
        ]

    def retry(self) -> None:
        """Try again to write what the disk refused; raises `StoreUnavailable` if it still does."""
        for name, data in list(self.unsaved.items()):
            if data is not None:
                self.files.write(name.file, data)
            else:
                with contextlib.suppress(NotFound):
                    self.files.delete(name.file)
            self.unsaved.pop(name, None)

    # Limits ------------------------------------------------------------------------------------------------

    def _make_room(self, payload: Payload, now: datetime) -> list[Name]:
        self.limits.check_entry(str(payload.name), payload.size)
        gone = self._replaced(payload, now)
        try:
            self._check_total(payload, gone)
        except SnapshotError:  # somebody may have deleted files by hand since we looked
            self.look(now)
            gone = self._replaced(payload, now)
            self._check_total(payload, gone)
        return gone

    def _replaced(self, payload: Payload, now: datetime) -> list[Name]:
        after = {**self._index, payload.name: Stored(payload.name, len(payload.data), now, now)}
        return evicted(payload.name.namespace, after.values(), self.limits, now)

    def _check_total(self, payload: Payload, gone: Iterable[Name]) -> None:
        freed = sum(self._index[name].size for name in {payload.name, *gone} if name in self._index)
        total = self.total - freed + len(payload.data)
        if total > self.total:  # what makes the memory smaller is always welcome
            self.limits.check_project(str(payload.name), total)
            self.limits.check_all_projects(str(payload.name), total + self.elsewhere)

    def _remember(self, payload: Payload, now: datetime) -> None:
        self._index[payload.name] = Stored(payload.name, len(payload.data), now, now)


def _missing(name: Name) -> NotFound:
    return NotFound(f"the project memory has no {name}", hint="list the namespace to see the keys it has")
