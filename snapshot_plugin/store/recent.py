"""A dict that keeps the entries used last, and no more than so many of them."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

__all__ = ["Recent"]

T = TypeVar("T")


class Recent(Generic[T]):
    """At most *limit* entries; the one not used for longest makes room. Safe to use from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[str, T] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> T | None:
        """The entry, if it is still there."""
        return self._entries.get(name)

    def put(self, name: str, entry: T) -> None:
        """Keep an entry, as the one used last."""
        with self._lock:
            self._entries.pop(name, None)
            self._entries[name] = entry
            while len(self._entries) > self._limit:
                del self._entries[next(iter(self._entries))]

    def pop(self, name: str) -> T | None:
        """Take an entry out."""
        with self._lock:
            return self._entries.pop(name, None)

    def items(self) -> list[tuple[str, T]]:
        """All entries, the one not used for longest first."""
        with self._lock:
            return list(self._entries.items())

    def values(self) -> list[T]:
        """The entries alone."""
        return [entry for _, entry in self.items()]

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._entries.clear()
