"""`FrameLog` as rows: a session has segments, a segment has frames, each frame is one row.

Every change runs in one transaction, under a lock of the session (`FrameLog.exclusively`). A segment's number is
never used again, so a reader of a segment that was replaced meanwhile finds nothing, and begins again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

from snapshot_plugin.codec.frame import Header, read_header
from snapshot_plugin.codec.scan import last_frame
from snapshot_plugin.errors import Conflict, SessionLocked, SnapshotCorrupted, WrongKey
from snapshot_plugin.model.ids import short_id
from snapshot_plugin.store.keychain import KEYSET
from snapshot_plugin.store.log import Segment, SessionEntry, Tip, check_end, overtaken, tip_of, undisturbed
from snapshot_plugin.store.postgres.areas import AreaRows
from snapshot_plugin.store.postgres.database import Database
from snapshot_plugin.store.postgres.live_rows import LiveRows
from snapshot_plugin.store.recent import Recent

__all__ = ["SEGMENT_BYTES", "SEGMENT_FRAMES", "RowLog"]

SEGMENT_BYTES = 4 << 20
SEGMENT_FRAMES = 256
_REMEMBERED = 1 << 12
"""Of how many sessions the end of the log is remembered: for the next save, and to compress it in the end."""
_HEADER_BYTES = 8 << 10
"""The header of nearly every frame fits into this."""
_LISTED_BYTES = 64 << 10
"""A list brings a newest frame along if it is not larger than this."""

_END = """
SELECT s.place, s.labels IS NOT NULL, g.segment, g.last, g.rewritten, g.frames, g.size, f.head
FROM {sessions} s
JOIN LATERAL (
    SELECT * FROM {segments} g WHERE g.place = s.place ORDER BY g.first DESC, g.segment DESC LIMIT 1
) g ON true
LEFT JOIN LATERAL (
    SELECT substring(f.data FOR %s) AS head FROM {frames} f WHERE f.segment = g.segment ORDER BY f.n DESC LIMIT 1
) f ON true
WHERE s.sid = %s AND s.token = ''
"""
_TAIL = """
SELECT f.data FROM {sessions} s JOIN {segments} g USING (place) JOIN {frames} f USING (segment)
WHERE s.sid = %s AND s.token = '' ORDER BY g.first DESC, g.segment DESC, f.n DESC LIMIT 1
"""
_LIST = """
WITH s AS (SELECT sid, place FROM {sessions} WHERE token = '' AND %s),
     g AS (
    SELECT place, sum(size)::bigint AS size, (array_agg(segment ORDER BY first DESC, segment DESC))[1] AS segment,
           (array_agg(frames ORDER BY first DESC, segment DESC))[1] AS n
    FROM {segments} JOIN s USING (place) GROUP BY place
)
SELECT s.sid, g.size, CASE WHEN octet_length(f.data) <= %s THEN f.data END
FROM s JOIN g USING (place) LEFT JOIN {frames} f USING (segment, n)
"""
"""The newest frame of a segment has the number of its frames. One pass over each table, not a look-up a session."""
_SAME_KEYS = "(%s::text IS NULL OR EXISTS (SELECT FROM {keys} WHERE name = %s AND md5(data) = %s))"
"""Whether the keys are those that the store object read; it reads them again if not."""
_EXTEND = """
WITH grown AS (
    UPDATE {segments} SET frames = frames + 1, size = size + %s WHERE segment = %s RETURNING segment, frames
)
INSERT INTO {frames} SELECT segment, frames, %s FROM grown
"""
_BEGIN_SEGMENT = """
WITH begun AS (
    INSERT INTO {segments} (place, first, last, rewritten, frames, size)
    VALUES (%s, %s, %s, %s, %s, %s) RETURNING segment
)
INSERT INTO {frames} SELECT begun.segment, f.n, f.data
FROM begun, unnest(%s::bytea[]) WITH ORDINALITY AS f (data, n)
"""
_REMOVE_SEGMENTS = """
WITH gone AS (DELETE FROM {segments} WHERE segment = ANY(%s) AND place = %s RETURNING segment),
     emptied AS (DELETE FROM {frames} f USING gone WHERE f.segment = gone.segment)
SELECT count(*) FROM gone
"""


class _End(NamedTuple):
    """The newest segment of a session, and the beginning of its last frame."""

    place: int
    has_labels: bool
    segment: int
    last: int
    rewritten: bool
    frames: int
    size: int
    head: bytes | None


class _Written(NamedTuple):
    """The newest segment of a session after this object appended to it the frame with that id."""

    id: str
    segment: int
    frames: int
    size: int
    has_labels: bool


class RowLog(AreaRows):
    """Frames in a database. Rows name a session by its `short_id`: an index takes no long text.

    Args:
        database: where the tables are.
        live: the leases. If this process owned the live session and another owner has taken it over, appends raise
            `Fenced`. Appends drop the spool records that their snapshot contains.
    """

    def __init__(
        self,
        database: Database,
        live: LiveRows,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segment_frames: int = SEGMENT_FRAMES,
    ) -> None:
        super().__init__(database)
        self._live = live
        self._segment_bytes, self._segment_frames = segment_bytes, segment_frames
        self._grown: Recent[int] = Recent(_REMEMBERED)
        self._written: Recent[_Written] = Recent(_REMEMBERED)
        self.keyset: object = None
        """What `SmallRows.stamp` says of the keys that the store seals with; None if it is not encrypted."""

    def exclusively(self, session_id: str) -> AbstractContextManager[None]:
        """See `FrameLog`. What happens inside is one transaction, committed when it is left."""
        idle = self._live.idle_seconds(session_id)
        return self._database.transaction(f"session {short_id(session_id)}", idle=idle)

    # Looking ---------------------------------------------------------------------------------------------

    def segments(self, session_id: str, area: str = "") -> list[Segment]:
        """See `FrameLog`."""
        kind, _, token = area.partition("/")
        if kind == "quarantine":
            return self.quarantined_segments(area)
        rows = self._database.rows(
            "SELECT g.segment, g.first, g.last, g.rewritten FROM {sessions} s JOIN {segments} g USING (place)"
            " WHERE s.sid = %s AND s.token = %s ORDER BY g.first, g.segment",
            short_id(session_id), token,
        )  # fmt: skip
        return [
            Segment(str(number), first, last if rewritten else first, rewritten, partial(self._read, number))
            for number, first, last, rewritten in rows
        ]

    def _read(self, segment: int) -> bytes:
        rows = self._database.read("SELECT data FROM {frames} WHERE segment = %s ORDER BY n", segment)
        if not rows:
            raise FileNotFoundError(f"segment {segment}")
        return b"".join(data for (data,) in rows)

    def _end(self, session_id: str) -> _End | None:
        rows = self._database.rows(_END, _HEADER_BYTES, short_id(session_id))
        return _End(*rows[0]) if rows else None

    def tip(self, session_id: str) -> Tip | None:
        """See `FrameLog`. One query, unless the last frame is damaged."""
        return self._tip(session_id, self._end(session_id))

    def _tip(self, session_id: str, end: _End | None) -> Tip | None:
        if end is None:
            return None
        try:
            header = read_header(end.head or b"")[0]
        except SnapshotCorrupted:  # or its header is longer than what we asked for
            return undisturbed(session_id, lambda: tip_of(self.segments(session_id)))
        return Tip(max(header.hi, end.last if end.rewritten else 0), header.id)

    def tail(self, session_id: str) -> bytes | None:
        """See `FrameLog`."""
        rows = self._database.read(_TAIL, short_id(session_id))
        data: bytes = rows[0][0] if rows else b""
        return data if last_frame(data) else None

    def sessions(self, only: str | None = None, labels: Mapping[str, str] | None = None) -> list[SessionEntry]:
        """See `FrameLog`. One query, which brings the newest frames along; labels have an index."""
        wanted = "sid = %s" if only is not None else "labels @> %s" if labels else "%s"
        value = short_id(only) if only is not None else _marks(labels) if labels else True
        rows = self._database.read(_LIST.replace("%s", wanted, 1), value, _LISTED_BYTES)
        return [SessionEntry(session_id, size, tail=tail) for session_id, size, tail in rows]

    # Writing ---------------------------------------------------------------------------------------------

    def append(
        self,
        session_id: str,
        frame: bytes,
        header: Header,
        *,
        after: Tip | None,
        refused: Collection[str] = (),
        fresh: bool = False,
        covered: int = 0,
    ) -> bool:
        """See `FrameLog`. One statement, once this object has appended to the segment that is the newest."""
        known = self._written.pop(session_id)
        is_usual = known and after and known.id == after.id and not fresh and self._database.is_untouched
        if (
            known
            and is_usual
            and not self._is_full(known, frame)
            and self._extend(session_id, frame, header, known, covered)
        ):
            return False
        self._live.must_not_be_fenced(session_id)
        self._must_have_the_keys(session_id)
        end = self._end(session_id)
        check_end(session_id, self._tip(session_id, end), after, refused)
        labels = header.other.get("labels")
        finished = False
        if end is None:
            place = self._new_place(session_id)
            self._put(place, header.hi, header.hi, [frame], rewritten=False)
        else:
            self._must_show(session_id, end, header)
            if fresh or end.rewritten or self._is_full(end, frame):
                finished = not end.rewritten
                self._put(end.place, header.hi, header.hi, [frame], rewritten=False)
            else:
                self._database.later(_EXTEND, len(frame), end.segment, frame)
                grown = _Written(
                    header.id, end.segment, end.frames + 1, end.size + len(frame), has_labels=bool(labels)
                )
                self._written.put(session_id, grown)
        if labels or (end and end.has_labels):
            self._label(session_id, labels)
        self._drop_covered(session_id, covered)
        is_extended = end is not None and not finished and not end.rewritten
        self._grown.put(session_id, len(frame) + (end.size if end and is_extended else 0))
        return finished

    def _extend(self, session_id: str, frame: bytes, header: Header, known: _Written, covered: int) -> bool:
        """Append by the function ``extend``, which takes the lock; False, with nothing changed, if it cannot."""
        labels, sid = header.other.get("labels"), short_id(session_id)
        lock, epoch = self._database.number(f"session {sid}"), self._live.epoch(sid)
        ((is_done,),) = self._database.ahead(
            f"SELECT CASE WHEN {_SAME_KEYS} THEN {{extend}}(%s, %s, %s, %s, %s, %s, %s, %s, %s) END",
            self.keyset, KEYSET, self.keyset, lock, sid, epoch, covered, known.segment, known.frames, frame,
            bool(labels or known.has_labels), _marks(labels) if labels else None,
        )  # fmt: skip
        if is_done is None:
            raise _rotated(session_id)
        if is_done:
            size = known.size + len(frame)
            self._grown.put(session_id, size)
            self._live.dropped(sid, epoch, covered)
            self._written.put(
                session_id, _Written(header.id, known.segment, known.frames + 1, size, has_labels=bool(labels))
            )
        return bool(is_done)

    def _is_full(self, end: _Written | _End, frame: bytes) -> bool:
        return end.frames >= self._segment_frames or end.size + len(frame) > self._segment_bytes

    def _must_have_the_keys(self, session_id: str) -> None:
        if self.keyset is not None:
            ((is_same,),) = self._database.rows(f"SELECT {_SAME_KEYS}", self.keyset, KEYSET, self.keyset)
            if not is_same:
                raise _rotated(session_id)

    def _drop_covered(self, session_id: str, covered: int) -> None:
        if covered and self._live.epoch(short_id(session_id)) is not None:
            self._database.later(
                "DELETE FROM {spool} WHERE sid = %s AND token = '' AND n <= %s", short_id(session_id), covered
            )

    def _must_show(self, session_id: str, end: _End, header: Header) -> None:
        """Raise `Conflict` if others rewrote a failed save of ours that has the number of *header*."""
        if end.rewritten and end.last >= header.hi:
            raise overtaken(session_id, Tip(end.last, ""))

    def _new_place(self, session_id: str) -> int:
        ((place,),) = self._database.rows(
            "INSERT INTO {sessions} (sid) VALUES (%s) RETURNING place", short_id(session_id)
        )
        return int(place)

    def _put(self, place: int, first: int, last: int, frames: Sequence[bytes], *, rewritten: bool) -> None:
        size = sum(map(len, frames))
        self._database.later(_BEGIN_SEGMENT, place, first, last, rewritten, len(frames), size, list(frames))

    def _label(self, session_id: str, labels: object) -> None:
        marks = _marks(labels) if isinstance(labels, dict) and labels else None
        self._database.rows(
            "UPDATE {sessions} SET labels = %s WHERE sid = %s AND token = ''", marks, short_id(session_id)
        )

    def replace(self, session_id: str, old: Sequence[Segment], frames: Sequence[bytes], hi: int) -> None:
        """See `FrameLog`. One transaction: readers see the old or the new."""
        self._must_have_the_keys(session_id)
        found = self._database.rows(
            "SELECT place FROM {sessions} WHERE sid = %s AND token = ''", short_id(session_id)
        )
        if found and not old:
            raise Conflict(f"there is a session {session_id}", session_id=session_id)
        place = found[0][0] if found else self._new_place(session_id)
        names = [int(segment.name) for segment in old]
        ((removed,),) = self._database.rows(_REMOVE_SEGMENTS, names, place)
        if removed != len(names):
            raise SessionLocked(f"another writer has rewritten session {session_id}", session_id=session_id)
        self._put(place, old[0].first if old else 1, hi, frames, rewritten=True)
        self._grown.pop(session_id)
        self._relabel(session_id)

    def _relabel(self, session_id: str) -> None:
        """Set the stored labels to those of the current newest snapshot."""
        newest = self.tail(session_id)
        if newest:
            self._label(session_id, read_header(newest)[0].other.get("labels"))

    # Background ------------------------------------------------------------------------------------------

    def grown(self, size: int) -> list[str]:
        """See `TendedLog`."""
        return [session_id for session_id, grown in self._grown.items() if grown >= size]

    def doubt(self) -> None:
        """See `TendedLog`: a key that can be read is durable."""

    def close(self) -> None:
        """See `FrameLog`."""
        self._database.close()


def _rotated(session_id: str) -> WrongKey:
    return WrongKey("another process has changed the keys of the store", session_id=session_id)


def _marks(labels: Mapping[str, str]) -> list[str]:
    """Labels as short digests: an index takes these, whatever characters a label has."""
    return [hashlib.blake2b(json.dumps(pair).encode(), digest_size=12).hexdigest() for pair in labels.items()]
