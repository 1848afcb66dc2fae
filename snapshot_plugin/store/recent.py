"""A dict with a limited number of entries: the least recently put one makes room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from snapshot_plugin.system import forks

__all__ = ["Recent"]

T = TypeVar("T")


class Recent(Generic[T]):
    """At most *limit* entries; the least recently put one is dropped first. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[str, T] = {}
        self._lock = forks.lock()
        self.get: Callable[[str], T | None] = self._entries.get
        """The entry with a name, if it is still there. Does not count as a use."""

    def put(self, name: str, entry: T) -> None:
        """Add or replace an entry, as the most recent one."""
        with self._lock:
            self._entries.pop(name, None)
            self._entries[name] = entry
            while len(self._entries) > self._limit:
                del self._entries[next(iter(self._entries))]

    def pop(self, name: str) -> T | None:
        """Remove and return an entry; None if there is none."""
        with self._lock:
            return self._entries.pop(name, None)

    def items(self) -> list[tuple[str, T]]:
        """All entries, the least recently put one first."""
        with self._lock:
            return list(self._entries.items())

    def values(self) -> list[T]:
        """The entries alone."""
        return [entry for _, entry in self.items()]

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()
