"""Project memories to test with: a project directory, and a register of their own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snapshot_plugin.memory import ProjectMemory
from snapshot_plugin.testing import FixedClock

Opener = Callable[..., ProjectMemory]
MIB = 1024 * 1024


def opener(project: Path, clock: FixedClock | None = None) -> Opener:
    """Makes memories of *project*; each is a session."""

    def open_memory(**options: Any) -> ProjectMemory:
        defaults: dict[str, Any] = {"state": project.parent / "state"}
        if clock is not None:
            defaults["clock"] = clock
        return ProjectMemory(project, **{**defaults, **options})

    return open_memory


def filled(project: Path) -> Path:
    """*project* with ten megabytes of memory."""
    rng = random.Random(7)
    stored: dict[str, object] = {f"baselines/b{n}": text(rng, 160_000) for n in range(50)}
    errors = [{"fingerprint": f"E{n}", "message": text(rng, 300)} for n in range(500)]
    stored["errors/history"] = {"entries": errors}
    stored["api_schema/schema"] = {"endpoints": [f"GET /{n}" for n in range(200)]}
    stored["noise/config"] = {"rules": [f"noise {n}" for n in range(100)]}
    stored |= {f"notes/n{n}": text(rng, 5000) for n in range(300)}
    stored["large/one"] = text(rng, MIB - 100)
    for name, data in stored.items():
        file = project / ".asnap" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(data))
    return project


def text(rng: random.Random, size: int) -> str:
    """So many characters, the same for the same *rng*."""
    return rng.randbytes(size // 2 + 1).hex()[:size]


def names_in(directory: Path) -> set[str]:
    """The names of a directory's files."""
    return {path.name for path in directory.iterdir()}


def stored_text(project: Path) -> str:
    """All that a project's memory holds, as it is on disk."""
    return "".join(path.read_text() for path in sorted(project.glob(".asnap/*/*.json")))
