"""The list of a plain store that is whole, from the newest frame of each session, without opening the store.

What opens a store takes longer to load than a thousand such frames take to read. Where anything is out of the
ordinary there is no answer here, and the store is opened as ever: it is right, and it says what is wrong.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from snapshot_plugin.cli.refs import short_ids
from snapshot_plugin.cli.sessions import SessionRow, who_has
from snapshot_plugin.codec.frame import open_meta
from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.manager.presence import presences
from snapshot_plugin.store.segments import SegmentFiles

__all__ = ["is_plain", "rows_in"]

_FORMAT = 1
_KINDS = {
    "title": str, "agent": str, "provider_type": str, "cwd": str, "tags": list, "pinned": bool, "parent": dict,
    "messages": int, "turns": int, "tokens": int, "cost": float, "created_at": str, "updated_at": str,
}  # fmt: skip
"""What a summary tells, and of what kind it has to be."""


def is_plain(root: Path) -> bool:
    """Whether there is a store in the directory *root* that needs no key."""
    try:
        about = json.loads((root / "STORE.json").read_bytes())
        known = about["format"] == _FORMAT and isinstance(about["id"], str)
        return known and about["encrypted"] is False and not (root / "keys").exists()
    except (OSError, ValueError, TypeError, KeyError):
        return False


def rows_in(root: Path) -> list[SessionRow] | None:
    """Every session of the plain store in the directory *root*, last changed first; None: open the store."""
    files = SegmentFiles(root)
    try:
        found = [_shown(files, session_id, size, problem) for session_id, size, problem in files.sessions()]
    except (SnapshotError, OSError, ValueError, TypeError, KeyError):
        return None
    found.sort(key=lambda row: (row["changed_at"], row["session_id"]), reverse=True)
    ids = [row["session_id"] for row in found]
    short, present = short_ids(ids), presences(root, ids)
    return [
        SessionRow(short_id=short[name], **row, **who_has(present.get(name)))
        for name, row in zip(ids, found, strict=True)
    ]


def _shown(files: SegmentFiles, session_id: str, size: int, problem: str | None) -> dict[str, Any]:
    """What a row shows of a session. An error of whatever kind: it is not as usual."""
    frame = None if problem else files.tail(session_id)
    if not frame:
        raise ValueError(session_id)
    header, summary = open_meta(frame, session_id=session_id, keys=None)
    told = {name: _checked(summary[name], kind) for name, kind in _KINDS.items() if name in summary}
    created, changed = told.pop("created_at", None), told.pop("updated_at", header.t)
    parent, tags = told.pop("parent", {}), told.pop("tags", ())
    return {
        **told,
        "session_id": session_id,
        "seq": header.hi,
        "trigger": header.trigger,
        "recovered": header.trigger == "recovered",
        "snapshot_tags": header.tags,
        "tags": tuple(_checked(tag, str) for tag in tags),
        "parent": _checked(parent["session_id"], str) if parent else None,
        "created_at": _moment(created) if created else None,
        "changed_at": _moment(changed),
        "saved_at": _moment(header.t),
        "size_bytes": size,
    }


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(value)
    return value


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is not UTC:
        raise ValueError(text)
    return found
