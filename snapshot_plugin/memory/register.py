"""How much the memories of all projects hold together: one small file per project, in the user's state directory.

Each writer notes its project's size; the sum is as fresh as the writers' last flush. Without the directory there is
no common limit, and nothing else is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from snapshot_plugin.memory.project import DIRECTORY
from snapshot_plugin.errors import StoreUnavailable
from snapshot_plugin.store.files import make_private_dir, replace_file

__all__ = ["ProjectRegister", "default_register_dir"]


def default_register_dir(environ: Mapping[str, str]) -> Path:
    """``asnap/projects`` in the user's state directory."""
    named = Path(environ.get("XDG_STATE_HOME", ""))
    state = named / "asnap" if named.is_absolute() else platformdirs.user_state_path("asnap", appauthor=False)
    return state / "projects"


class ProjectRegister:
    """The projects of this user that have a memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._noted: tuple[Path, int] | None = None

    def note(self, project: Path, size: int) -> None:
        """Note the size of a project's memory, as well as the disk allows."""
        if self._noted == (project, size):
            return
        line = json.dumps({"project": str(project), "bytes": size}).encode() + b"\n"
        with contextlib.suppress(OSError, StoreUnavailable):
            make_private_dir(self._directory)
            replace_file(self._file(project), line)
            self._noted = (project, size)

    def others(self, project: Path) -> int:
        """The bytes that all other projects' memories hold. Projects whose memory is gone are forgotten."""
        total = 0
        with contextlib.suppress(OSError):
            for file in self._directory.glob("*.json"):
                if file != self._file(project):
                    total += _size(file)
        return total

    def _file(self, project: Path) -> Path:
        return (
            self._directory
            / f"{hashlib.sha256(str(project).encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json"
        )


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
