"""How much the memories of all projects hold together: one small file per project in the user's state directory.

Each writer notes its project's size, so the sum is as fresh as the last writes. Where the directory cannot be used
there is no common limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from snapshot_plugin.errors import StoreUnavailable
from snapshot_plugin.memory.files import DIRECTORY
from snapshot_plugin.store.files import make_private_dir, replace_file

__all__ = ["ProjectSizes"]


class ProjectSizes:
    """The sizes of all projects' memories, as seen from one of them."""

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
