"""What is in a store, for tests of commands that change it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio

from snapshot_plugin import FilesystemStore, SessionSnapshot
from snapshot_plugin.codec.sources import KeySource

__all__ = ["loaded", "operations", "session_ids"]


def loaded(place: Path, session_id: str, *, at: int | None = None, key: str | None = None) -> SessionSnapshot:
    """A session as it is stored."""

    async def load() -> SessionSnapshot:
        async with FilesystemStore(place, key=key, create=False, background=False) as store:
            return await store.load(session_id, at=at)

    return anyio.run(load)


def session_ids(place: Path, *, key: str | KeySource | None = None) -> list[str]:
    """Every session there is, by name."""

    async def listed() -> list[str]:
        async with FilesystemStore(place, key=key, create=False, background=False) as store:
            return sorted(meta.session_id for meta in await store.list())

    return anyio.run(listed)


def operations(home: Path) -> list[dict[str, Any]]:
    """What was written down for undo by the user whose home it is, oldest first."""
    logs = (home / "state").rglob("*.jsonl")
    return [json.loads(line) for log in logs for line in log.read_text("utf-8").splitlines()]
