"""The areas of sessions as rows. In the trash, rows stay where they are and get a token; so do copies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.model.ids import short_id, time_of
from snapshot_plugin.store.log import Area, Segment
from snapshot_plugin.store.postgres.database import Database
from snapshot_plugin.store.postgres.small_rows import SmallRows
from snapshot_plugin.store.trash import area_of, in_use, no_such_entry, taken, unrecovered

__all__ = ["AreaRows"]

_TRASH = """
SELECT s.sid, s.token, (SELECT coalesce(sum(g.size), 0)::bigint FROM {segments} g WHERE g.place = s.place)
FROM {sessions} s WHERE s.token <> '' AND (s.sid = %s OR %s::text IS NULL)
"""
_QUARANTINE = """
SELECT sid, id, octet_length(data) FROM {quarantine} WHERE sid = %s OR %s::text IS NULL ORDER BY id
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


class AreaRows(SmallRows):
    """The part of `FrameLog` that copies, moves, lists and removes areas."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def areas(self, under: str, session_id: str | None = None) -> list[Area]:
        """See `FrameLog`. One query."""
        name = short_id(session_id) if session_id is not None else None
        rows = self._database.rows(_TRASH if under == "trash" else _QUARANTINE, name, name)
        return [Area(sid, f"{under}/{key}", size) for sid, key, size in rows]

    def quarantined_segments(self, area: str) -> list[Segment]:
        """The segment of an area in quarantine; see `FrameLog.segments`."""
        number = int(area.partition("/")[2])
        rows = self._database.rows("SELECT first FROM {quarantine} WHERE id = %s", number)
        return [
            Segment(area, first, 1 << 62, rewritten=True, read=partial(self._data, number)) for (first,) in rows
        ]

    def _data(self, number: int) -> bytes:
        rows = self._database.read("SELECT data FROM {quarantine} WHERE id = %s", number)
        if not rows:
            raise FileNotFoundError(f"quarantine/{number}")
        return bytes(rows[0][0])

    def copy(self, session_id: str, segments: Sequence[Segment], area: str) -> str:
        """See `FrameLog`. An area in quarantine is named after its row."""
        kind, _, token = area.partition("/")
        if kind == "quarantine":
            for segment in segments:
                ((number,),) = self._database.rows(
                    "INSERT INTO {quarantine} (sid, first, data) VALUES (%s, %s, %s) RETURNING id",
                    short_id(session_id), segment.first, segment.read(),
                )  # fmt: skip
                area = f"{kind}/{number}"
            return area
        copied = self._database.rows(
            "INSERT INTO {sessions} (sid, token, deleted_at, labels)"
            " SELECT sid, %s, %s, labels FROM {sessions} WHERE sid = %s AND token = '' RETURNING place",
            token, time_of(token), short_id(session_id),
        )  # fmt: skip
        if not copied:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        for segment in segments:
            self._database.rows(_COPY_SEGMENT, copied[0][0], int(segment.name), int(segment.name))
        return area

    def move(self, session_id: str, source: str, target: str) -> None:
        """See `FrameLog`. With a session, its spool goes to the trash or comes back; a live owner is fenced."""
        sid, token = short_id(session_id), (source or target).partition("/")[2]
        if not target:
            self._bring_back(sid, token)
            return
        moved = self._database.rows(
            "UPDATE {sessions} SET token = %s, deleted_at = %s WHERE sid = %s AND token = '' RETURNING place",
            token, time_of(token), sid,
        )  # fmt: skip
        if not moved:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        self._database.rows(
            "UPDATE {live} SET epoch = epoch + 1, owner = NULL, base = 0, last = 0 WHERE sid = %s", sid
        )
        self._database.rows("UPDATE {spool} SET token = %s WHERE sid = %s AND token = ''", token, sid)

    def _bring_back(self, session_id: str, token: str) -> None:
        if self._database.rows("SELECT 1 FROM {sessions} WHERE sid = %s AND token = ''", session_id):
            raise taken(session_id)
        self._must_be_nobodys(session_id)
        if not self._database.rows(
            "UPDATE {sessions} SET token = '', deleted_at = NULL WHERE sid = %s AND token = %s RETURNING place",
            session_id, token,
        ):  # fmt: skip
            raise no_such_entry(token)
        self._respool(session_id, token)

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

    def remove(self, areas: Sequence[Area]) -> list[Area]:
        """See `FrameLog`. One statement."""
        tokens = [area.name.partition("/")[2] for area in areas]
        gone = {area_of(token) for (token,) in self._database.rows(_PURGE, tokens)}
        return [area for area in areas if area.name in gone]
