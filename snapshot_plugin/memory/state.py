"""What all projects of a user share, in the user's state directory: preferences, and the sizes of memories."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from snapshot_plugin.errors import SnapshotError, StoreUnavailable
from snapshot_plugin.manager.ports import Clock
from snapshot_plugin.memory.changes import MemoryChange, MemoryView, Outcome
from snapshot_plugin.memory.files import DIRECTORY, GLOBAL, MemoryFiles, Name, Scan
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.store.files import disk_errors, make_private_dir, replace_file

__all__ = ["Preferences", "ProjectSizes"]


class Preferences:
    """The namespace ``global``. Each entry is a file that is replaced atomically, so no lock is needed."""

    def __init__(self, state: Path, limits: MemoryLimits, clock: Clock) -> None:
        self._state, self._limits, self._clock = state, limits, clock
        self._files = MemoryFiles(state, "memory")

    def view(self) -> MemoryView:
        """The preferences; empty if the directory cannot be read."""
        scan = Scan()
        with contextlib.suppress(StoreUnavailable):
            scan = self._files.scan()
        return MemoryView(self._files, scan, {"used": {}}, self._limits, now=self._clock())

    def all(self) -> dict[str, Any]:
        """Every entry by its key; damaged ones are left out."""
        view, found = self.view(), {}
        for key in view.keys.get(GLOBAL, ()):
            with contextlib.suppress(SnapshotError):
                found[key] = view.load(Name(GLOBAL, key))
        return found

    def write(self, change: MemoryChange) -> Outcome:
        """Apply a change; on disk when it returns. Raises `StoreUnavailable`."""
        with disk_errors(f"writing {change.name}"):
            make_private_dir(self._state)
        view = self.view()
        outcome = view.apply(change)
        self._files.replace(view.finish())
        return outcome


class ProjectSizes:
    """The sizes of all projects' memories, as seen from one of them: one small file per project.

    Each writer records its project's size, so the sum is as recent as the last writes. If the directory cannot be
    used, there is no common limit.
    """

    def __init__(self, state: Path, project: Path) -> None:
        self._directory, self._project = state / "projects", project
        digest = hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()
        self._own = self._directory / f"{digest[:32]}.json"
        self._noted: int | None = None

    def note(self, size: int) -> None:
        """Record the size of this project's memory, if the disk allows."""
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
