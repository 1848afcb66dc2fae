"""Who has each session right now, and which ones lost their owner without a stop: one look for a whole list.

A lease that was stopped properly is empty, so most sessions cost one ``stat``. Nothing is created or changed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.model.ids import dirname_of, session_id_of

if TYPE_CHECKING:
    from snapshot_plugin.manager.lease import Owner

__all__ = ["Presence", "abandoned", "presences", "sessions_of", "unsaved"]


class Presence(NamedTuple):
    """A session that has an owner, or had one that died. `last_sign` is when it was last heard of, if it died."""

    owner: Owner | None = None
    died: Owner | None = None
    last_sign: datetime | None = None


def presences(root: Path, session_ids: Iterable[str]) -> dict[str, Presence]:
    """The sessions of the store at *root* that are live, or ended without a proper stop; the rest are left out."""
    found = {}
    for session_id in session_ids:
        try:
            directory = f"{root}/sessions/{dirname_of(session_id)}"
            if os.stat(f"{directory}/.lease").st_size:  # noqa: PTH116 — a list does this a thousand times
                found[session_id] = _presence(Path(directory))
        except (OSError, SnapshotError):  # most have no lease; one may go away, or be no session, while we look
            continue
    return {session_id: presence for session_id, presence in found.items() if presence != Presence()}


def sessions_of(root: Path) -> list[str]:
    """Every session with a directory in the store at *root*, saved or not: it may have died before that."""
    try:
        with os.scandir(root / "sessions") as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):  # there is no store, or none any more
        return []
    return [session_id for name in names if (session_id := session_id_of(name)) is not None]


def abandoned(root: Path) -> list[str]:
    """The sessions whose process died and whose spool nobody has recovered yet."""
    return [session_id for session_id, presence in presences(root, sessions_of(root)).items() if presence.died]


def unsaved(root: Path, saved: Collection[str]) -> dict[str, Presence]:
    """Sessions that no snapshot was ever made of: they are in nobody's list, but what was said in them is there."""
    known = frozenset(saved)
    return presences(root, [session_id for session_id in sessions_of(root) if session_id not in known])


def _presence(directory: Path) -> Presence:
    from snapshot_plugin.manager.lease import ended_without_stop, owner_of  # noqa: PLC0415 — most lists meet none

    owner = owner_of(directory)
    if owner is not None:
        return Presence(owner=owner)
    died = ended_without_stop(directory)
    return Presence(died=died, last_sign=_last_sign(directory)) if died else Presence()


def _last_sign(directory: Path) -> datetime:
    """When its owner last wrote: to the spool, or else when it took the session."""
    spool = directory / "live"
    newest = max((directory / ".lease").stat().st_mtime, spool.stat().st_mtime if spool.exists() else 0)
    return datetime.fromtimestamp(newest, UTC)
