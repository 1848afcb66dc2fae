"""Project memories to test with: a project directory, and a register of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from snapshot_plugin.adapters.memory import ProjectMemory
from snapshot_plugin.testing.clock import FixedClock

Opener = Callable[..., ProjectMemory]


def opener(project: Path, clock: FixedClock | None = None) -> Opener:
    """Makes memories of *project*; each is a session."""

    def open_memory(**options: Any) -> ProjectMemory:
        defaults: dict[str, Any] = {"register": project.parent / "register"}
        if clock is not None:
            defaults["clock"] = clock
        return ProjectMemory(project, **{**defaults, **options})

    return open_memory


def names_in(directory: Path) -> set[str]:
    """The names of a directory's files."""
    return {path.name for path in directory.iterdir()}


def stored_text(project: Path) -> str:
    """All that a project's memory holds, as it is on disk."""
    return "".join(path.read_text() for path in sorted(project.glob(".asnap/*/*.json")))
