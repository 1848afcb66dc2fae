"""What all projects of a user share, in the user's state directory: preferences, and the sizes of memories."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from snapshot_plugin.errors import NotFound, SnapshotError, StoreUnavailable
from snapshot_plugin.memory.files import DIRECTORY, GLOBAL, MemoryEntry, MemoryFiles, Name, encoded
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.store.files import disk_errors, make_private_dir, replace_file

__all__ = ["Preferences", "ProjectSizes"]


class Preferences:
    """The namespace ``global``. Each entry is a file that is replaced whole, so no lock is needed."""

    def __init__(self, state: Path, limits: MemoryLimits) -> None:
        self._state, self._limits = state, limits
        self._files = MemoryFiles(state, "memory")

    def keys(self) -> list[str]:
        """The keys there are, in order; none where the directory cannot be read."""
        with contextlib.suppress(StoreUnavailable):
            return sorted(name.key for name in self._files.scan().entries)
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
        return self._files.read(self._entry(key).path)

    def save(self, key: str, data: Any) -> int:
        """Store an entry and return its size; on disk when it returns. `LimitExceeded`, `StoreUnavailable`."""
        name, content = Name(GLOBAL, key), encoded(data)
        self._limits.check_entry(str(name), len(content))
        with disk_errors(f"writing {name}"):
            make_private_dir(self._state)
        entries = self._files.scan().entries
        others = sum(entry.size for other, entry in entries.items() if other != name)
        self._limits.check_total(str(name), others + len(content), 0)
        self._files.write(entries[name].path if name in entries else name.path, content)
        return len(content)

    def delete(self, key: str) -> None:
        """Remove an entry; `NotFound`."""
        self._files.delete(self._entry(key).path)

    def _entry(self, key: str) -> MemoryEntry:
        found = self._files.scan().entries.get(Name(GLOBAL, key))
        if found is None:
            raise NotFound(f"there is no global/{key}", hint="list the namespace to see its keys")
        return found


class ProjectSizes:
    """The sizes of all projects' memories, as seen from one of them: one small file per project.

    Each writer notes its project's size, so the sum is as fresh as the last writes. Where the directory cannot be
    used there is no common limit.
    """

    def __init__(self, directory: Path, project: Path) -> None:
        self._directory, self._project = directory, project
        digest = hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()
        self._own = directory / f"{digest[:32]}.json"
        self._noted: int | None = None

    def note(self, size: int) -> None:
        """Note the size of this project's memory, as well as the disk allows."""
        if self._noted != size:
            line = json.dumps({"project": str(self._project), "bytes": size}).encode() + b"\n"
            with contextlib.suppress(OSError, StoreUnavailable):
                make_private_dir(self._directory)
                replace_file(self._own, line)
                self._noted = size

    def others(self) -> int:
        """The bytes of all other projects' memories. Projects whose memory is gone are forgotten."""
        with contextlib.suppress(OSError):
            return sum(_size(file) for file in self._directory.glob("*.json") if file != self._own)
        return 0


def _size(file: Path) -> int:
    try:
        noted = json.loads(file.read_bytes())
        project, size = Path(noted["project"]), int(noted["bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    if not (project / DIRECTORY).is_dir():
        with contextlib.suppress(OSError):
            file.unlink()
        return 0
    return max(size, 0)
