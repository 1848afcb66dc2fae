"""The namespace ``global``: what a user prefers in every project, kept in the user's state directory."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

from snapshot_plugin.errors import NotFound, SnapshotError, StoreUnavailable
from snapshot_plugin.memory.batch import Saved
from snapshot_plugin.memory.files import MemoryFiles, encoded
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.names import GLOBAL, Name
from snapshot_plugin.store.files import disk_errors, make_private_dir

__all__ = ["Preferences"]

_DIRECTORY: Final = "memory"


class Preferences:
    """Entries that all projects of a user share. Each is replaced whole, so no lock is needed."""

    def __init__(self, state: Path, limits: Limits) -> None:
        self._state, self._limits = state, limits
        self._files = MemoryFiles(state, _DIRECTORY)

    def keys(self) -> list[str]:
        """The keys there are, in order; none where the directory cannot be read."""
        try:
            return sorted(name.key for name in self._files.scan().entries)
        except StoreUnavailable:
            return []

    def all(self) -> dict[str, Any]:
        """Every entry by its key; damaged ones are left out."""
        found: dict[str, Any] = {}
        for key in self.keys():
            with contextlib.suppress(SnapshotError):
                found[key] = self.load(key)
        return found

    def load(self, key: str) -> Any:
        """An entry's data; `NotFound`, `SnapshotCorrupted`."""
        found = self._files.scan().entries.get(Name(GLOBAL, key))
        if found is None:
            raise NotFound(f"there is no global/{key}", hint="list the namespace to see its keys")
        return self._files.read(found.path)

    def save(self, key: str, data: Any) -> Saved:
        """Store an entry; on disk when it returns. `LimitExceeded`, `StoreUnavailable`."""
        name, content = Name(GLOBAL, key), encoded(data)
        self._limits.check_entry(str(name), len(content))
        with disk_errors(f"writing {name}"):
            make_private_dir(self._state)
        scan = self._files.scan()
        others = sum(stored.size for other, stored in scan.entries.items() if other != name)
        self._limits.check_total(str(name), others + len(content), 0)
        self._files.write(scan.entries[name].path if name in scan.entries else name.path, content)
        return Saved(namespace=GLOBAL, key=key, bytes=len(content))

    def delete(self, key: str) -> Saved:
        """Remove an entry; `NotFound`."""
        found = self._files.scan().entries.get(Name(GLOBAL, key))
        if found is None:
            raise NotFound(f"there is no global/{key}", hint="list the namespace to see its keys")
        self._files.delete(found.path)
        return Saved(namespace=GLOBAL, key=key)
