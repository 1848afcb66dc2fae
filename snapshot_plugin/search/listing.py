"""A cache of the store's list, valid while the mark of the store (`store.look`) is the same."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from snapshot_plugin.model.meta import SnapshotMeta

__all__ = ["recalled", "remember"]


def recalled(connection: sqlite3.Connection, mark: str) -> list[SnapshotMeta] | None:
    """The cached list for *mark*; None if there is none."""
    data = _remembered(connection, mark)
    try:
        return None if data is None else [SnapshotMeta.told(meta) for meta in json.loads(data)]
    except (ValueError, TypeError, AttributeError):
        return None


def _remembered(connection: sqlite3.Connection, mark: str) -> bytes | None:
    try:
        found = connection.execute("SELECT metas FROM listing WHERE mark = ?", (mark,)).fetchone()
    except sqlite3.DatabaseError:
        return None
    return found[0] if found else None


def remember(connection: sqlite3.Connection, mark: str, metas: Sequence[SnapshotMeta]) -> None:
    """Cache the list under *mark*, which was taken before the list was read and is therefore never newer."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 — mostly the list is known

    listed = json.dumps([to_jsonable_python(meta) for meta in metas]).encode()
    connection.execute("DELETE FROM listing")
    connection.execute("INSERT INTO listing (mark, metas) VALUES (?, ?)", (mark, listed))
