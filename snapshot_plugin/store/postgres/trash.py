"""Deleted sessions: their rows stay where they are and get a token. Copies of sessions have the same form."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from snapshot_plugin.errors import Conflict, SnapshotNotFound
from snapshot_plugin.model.ids import short_id
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.log import Segment
from snapshot_plugin.store.postgres.database import Database, Row
from snapshot_plugin.store.trash import in_use, unrecovered

__all__ = ["TrashRows"]

_ENTRY = """
SELECT s.sid, s.token, s.deleted_at,
       (SELECT coalesce(sum(g.size), 0)::bigint FROM {segments} g WHERE g.place = s.place)
FROM {sessions} s WHERE s.token
"""
_COPY_SEGMENT = """
WITH copy AS (
    INSERT INTO {segments} (place, first, last, rewritten, frames, size)
    SELECT %s, first, last, rewritten, frames, size FROM {segments} WHERE segment = %s RETURNING segment
)
INSERT INTO {frames} SELECT copy.segment, f.n, f.data FROM copy, {frames} f WHERE f.segment = %s
"""
_NOBODYS = """
SELECT owner IS NOT NULL AND until > clock_timestamp(),
       EXISTS (SELECT FROM {spool} s WHERE s.sid = l.sid AND s.token = '' AND s.n > l.base)
FROM {live} l WHERE sid = %s FOR UPDATE
"""
_PURGE = """
WITH gone AS (DELETE FROM {sessions} WHERE token = ANY(%s) AND token <> '' RETURNING place, token, sid),
     emptied AS (DELETE FROM {segments} g USING gone WHERE g.place = gone.place RETURNING g.segment),
     spooled AS (DELETE FROM {spool} s USING gone WHERE s.sid = gone.sid AND s.token = gone.token),
     removed AS (DELETE FROM {frames} f USING emptied WHERE f.segment = emptied.segment)
SELECT token FROM gone
"""


class TrashRows:
    """The part of `FrameLog` that discards, and brings back."""

    def __init__(self, database: Database, segments_at: Callable[[str, str], list[Segment]]) -> None:
        self._database, self._segments_at = database, segments_at

    def discard(self, session_id: str, *, token: str, now: datetime) -> Trashed:
        """See `FrameLog`. The owner of the live session is fenced, and its spool goes to the trash too."""
        sid = short_id(session_id)
        moved = self._database.rows(
            "UPDATE {sessions} SET token = %s, deleted_at = %s WHERE sid = %s AND token = '' RETURNING place",
            token, now, sid,
        )  # fmt: skip
        if not moved:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        self._database.rows(
            "UPDATE {live} SET epoch = epoch + 1, owner = NULL, base = 0, last = 0 WHERE sid = %s", sid
        )
        self._database.rows("UPDATE {spool} SET token = %s WHERE sid = %s AND token = ''", token, sid)
        return self._entry(token)

    def keep(self, session_id: str, *, token: str, now: datetime) -> Trashed:
        """See `FrameLog`."""
        with self._database.transaction():
            copied = self._database.rows(
                "INSERT INTO {sessions} (sid, token, deleted_at, labels)"
                " SELECT sid, %s, %s, labels FROM {sessions} WHERE sid = %s AND token = '' RETURNING place",
                token, now, short_id(session_id),
            )  # fmt: skip
            if not copied:
                raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
            for segment in self._segments_at(session_id, ""):
                self._database.rows(_COPY_SEGMENT, copied[0][0], int(segment.name), int(segment.name))
            return self._entry(token)

    def kept(self, token: str) -> list[Segment]:
        """See `FrameLog`."""
        return self._segments_at(self._entry(token).session_id, token)

    def _entry(self, token: str) -> Trashed:
        found = self._database.rows(f"{_ENTRY} = %s AND s.token <> ''", token)
        if not found:
            raise _nothing(token)
        return _trashed(found[0])

    def trash(self) -> list[Trashed]:
        """See `FrameLog`. One query."""
        return [
            _trashed(row) for row in self._database.rows(f"{_ENTRY} <> '' ORDER BY deleted_at DESC, token DESC")
        ]

    def undelete(self, token: str) -> str:
        """See `FrameLog`."""
        session_id = self._entry(token).session_id
        if self._database.rows("SELECT 1 FROM {sessions} WHERE sid = %s AND token = ''", session_id):
            raise Conflict(
                f"there is a new session {session_id}", session_id=session_id,
                hint="restore the old one under another id, or delete the new one first",
            )  # fmt: skip
        self._must_be_nobodys(session_id)
        if not self._database.rows(
            "UPDATE {sessions} SET token = '', deleted_at = NULL WHERE sid = %s AND token = %s RETURNING place",
            session_id, token,
        ):  # fmt: skip
            raise _nothing(token)
        self._respool(session_id, token)
        return session_id

    def _must_be_nobodys(self, session_id: str) -> None:
        """Make sure that no live session has the id. Until the transaction ends, nobody can take it."""
        for is_held, has_records in self._database.rows(_NOBODYS, session_id):
            if is_held:
                raise in_use(session_id)
            if has_records:
                raise unrecovered(session_id)

    def _respool(self, session_id: str, token: str) -> None:
        """Bring the spool back as well."""
        (first, last), *_ = self._database.rows(
            "SELECT min(n), max(n) FROM {spool} WHERE sid = %s AND token = %s", session_id, token
        )
        if first is None:
            return
        self._database.rows("UPDATE {spool} SET token = '' WHERE sid = %s AND token = %s", session_id, token)
        self._database.rows("UPDATE {live} SET base = %s, last = %s WHERE sid = %s", first - 1, last, session_id)

    def purge(self, *, older_than: timedelta, now: datetime, only: str | None = None) -> list[Trashed]:
        """See `FrameLog`. One transaction."""
        with self._database.transaction():
            old = [entry for entry in self.trash() if now - entry.deleted_at >= older_than]
            gone = [entry for entry in old if only in (None, entry.token)]
            removed = {token for (token,) in self._database.rows(_PURGE, [entry.token for entry in gone])}
        return [entry for entry in gone if entry.token in removed]


def _nothing(token: str) -> SnapshotNotFound:
    return SnapshotNotFound(f"nothing in the trash has the token {token}", hint="it was purged, or restored before")


def _trashed(row: Row) -> Trashed:
    session_id, token, deleted_at, size = row
    return Trashed(session_id=session_id, token=token, deleted_at=deleted_at, size_bytes=size)
