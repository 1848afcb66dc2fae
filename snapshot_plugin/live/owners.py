"""Find which sessions of a store are live, and whose owner died without a proper stop, in one pass over a list.

A properly released lease is empty, so most sessions cost one ``stat``. Nothing is created or changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.model.ids import dirname_of, session_id_of, short_id
from snapshot_plugin.store.filenames import SPOOL, SPOOL_FILES

if TYPE_CHECKING:
    from snapshot_plugin.live.lease import Owner

__all__ = ["Ownership", "abandoned", "ownerships", "sessions_of", "unsaved"]

_SHORTENED = re.compile("~[0-9a-f]{40}$")


class Ownership(NamedTuple):
    """A session's living `owner`, or the one that `died` without a proper stop and when it last wrote."""

    owner: Owner | None = None
    died: Owner | None = None
    last_sign: datetime | None = None


def ownerships(root: Path, session_ids: Iterable[str]) -> dict[str, Ownership]:
    """The sessions of the store at *root* that are live, or ended without a proper stop; the rest are left out."""
    found = {}
    for session_id in session_ids:
        try:
            directory = f"{root}/sessions/{dirname_of(session_id)}"
            if os.stat(f"{directory}/.lease").st_size:  # noqa: PTH116 — a list does this a thousand times
                found[session_id] = _ownership(Path(directory))
        except (OSError, SnapshotError):  # most have no lease; a session may be deleted, or be invalid
            continue
    return {session_id: ownership for session_id, ownership in found.items() if ownership != Ownership()}


def sessions_of(root: Path) -> list[str]:
    """Every session with a directory in the store at *root*, including those that died before their first save."""
    try:
        with os.scandir(root / "sessions") as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):  # there is no store, or it was removed
        return []
    found = [session_id for name in names if (session_id := session_id_of(name)) is not None]
    return [_whole(root, session_id) if _SHORTENED.search(session_id) else session_id for session_id in found]


def _whole(root: Path, short: str) -> str:
    """The id that was shortened to *short*; its spool has it. Without a spool, *short* itself."""
    from snapshot_plugin.live.spool import session_in  # noqa: PLC0415 — few ids are long

    found = session_in(root / "sessions" / dirname_of(short) / SPOOL)
    return found if found is not None and short_id(found) == short else short


def abandoned(root: Path) -> list[str]:
    """The sessions whose process died and whose spool was not recovered yet."""
    return [session_id for session_id, ownership in ownerships(root, sessions_of(root)).items() if ownership.died]


def unsaved(root: Path, saved: Collection[str]) -> dict[str, Ownership]:
    """Sessions that are live or died before their first snapshot. The store does not list them."""
    known = frozenset(saved).union(map(short_id, saved))
    return ownerships(root, [session_id for session_id in sessions_of(root) if session_id not in known])


def _ownership(directory: Path) -> Ownership:
    from snapshot_plugin.live.lease import lease_of  # noqa: PLC0415 — most lists need no lease

    found = lease_of(directory)
    return found._replace(last_sign=_last_sign(directory)) if found.died else found


def _last_sign(directory: Path) -> datetime:
    """When the owner last wrote to the spool or, if it never did, when it took the session."""
    files = [directory / ".lease", *(path for name in SPOOL_FILES if (path := directory / name).exists())]
    newest = max(file.stat().st_mtime for file in files)
    return datetime.fromtimestamp(newest, UTC)
