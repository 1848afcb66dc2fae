"""A backend that somebody else might write: frames as rows of SQLite. It runs the public contract suite."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import Conflict, MemoryStore, SnapshotNotFound, StoreUnavailable
from snapshot_plugin.codec.frame import Header, read_header
from snapshot_plugin.codec.scan import last_frame
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.base import SnapshotStore, Trashed
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.store.log import Segment, SessionEntry, Tip, check_end, tip_of
from snapshot_plugin.store.memory import MemoryLog
from snapshot_plugin.testing import FaultyStore, StoreContract

Clock = Callable[[], datetime]

SCHEMA = """
CREATE TABLE IF NOT EXISTS frames (token TEXT, sid TEXT, seq INTEGER, frame BLOB, PRIMARY KEY (token, sid, seq));
CREATE TABLE IF NOT EXISTS sessions (token TEXT, sid TEXT, last INTEGER, deleted TEXT, PRIMARY KEY (token, sid));
CREATE TABLE IF NOT EXISTS quarantine (sid TEXT, frames BLOB);
"""
STORED = "SELECT last, frame FROM sessions LEFT JOIN frames USING (token, sid) WHERE token = '' AND sid = ?"


class SqliteLog:
    """`FrameLog` in a database: one row a frame. The token of a session in use is ``''``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = sqlite3.connect(
                        self._path, timeout=30, isolation_level=None, check_same_thread=False
                    )
                    self._connection.executescript(SCHEMA)
                yield self._connection
            except sqlite3.Error as error:
                raise StoreUnavailable(f"the database refused: {error}") from error

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._database() as database:
            return database.execute(query, values).fetchall()

    @contextlib.contextmanager
    def exclusively(self, session_id: str) -> Iterator[None]:
        """One transaction: what happens inside is there for others, and durable, when it is left."""
        with self._database() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield
                database.execute("COMMIT")
            except BaseException:
                database.execute("ROLLBACK")
                raise

    def segments(self, session_id: str) -> list[Segment]:
        """One query, so that the numbers and the frames are of the same moment."""
        rows = self._rows(f"{STORED} ORDER BY seq", session_id)
        frames = b"".join(frame for _last, frame in rows if frame is not None)
        name = f"{len(rows)} rows"  # what replaces them has another name
        return [Segment(name, 1, last, rewritten=True, read=partial(bytes, frames)) for last, _ in rows[:1]]

    def tip(self, session_id: str) -> Tip | None:
        for last, frame in self._rows(f"{STORED} ORDER BY seq DESC LIMIT 1", session_id):
            if frame and (piece := last_frame(frame)) and piece.header:
                return Tip(last, piece.header.id)
        return tip_of(self.segments(session_id))

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
        check_end(session_id, self.tip(session_id), after, refused)
        insert = (
            "INSERT OR REPLACE" if fresh else "INSERT"
        )  # fresh: a frame with that number was never acknowledged
        self._rows(f"{insert} INTO frames VALUES ('', ?, ?, ?)", session_id, header.hi, frame)
        self._rows("INSERT OR REPLACE INTO sessions VALUES ('', ?, ?, NULL)", session_id, header.hi)
        return False

    def tail(self, session_id: str) -> bytes | None:
        rows = self._rows(f"{STORED} ORDER BY seq DESC LIMIT 1", session_id)
        return next((frame for _last, frame in rows), None)

    def replace(self, session_id: str, old: Sequence[Segment], frames: Sequence[bytes], hi: int) -> None:
        self._rows("DELETE FROM frames WHERE token = '' AND sid = ?", session_id)
        for frame in frames:
            self._rows("INSERT INTO frames VALUES ('', ?, ?, ?)", session_id, read_header(frame)[0].hi, frame)
        self._rows("INSERT OR REPLACE INTO sessions VALUES ('', ?, ?, NULL)", session_id, hi)

    def sessions(self, only: str | None = None) -> list[SessionEntry]:
        query = "SELECT sid, sum(length(frame)) FROM frames WHERE token = '' GROUP BY sid"
        return [entry for row in self._rows(query) if only in (None, (entry := SessionEntry(*row)).session_id)]

    def quarantine(self, session_id: str, segment: Segment) -> str:
        self._rows("INSERT INTO quarantine VALUES (?, ?)", session_id, segment.read())
        return "the table quarantine"

    def aside(self, session_id: str | None = None) -> list[tuple[str, Segment]]:
        rows = self._rows("SELECT sid, frames FROM quarantine")
        return [
            (sid, Segment("the table quarantine", 1, 1 << 62, rewritten=True, read=partial(bytes, frames)))
            for sid, frames in rows
            if session_id in (None, sid)
        ]

    def discard(self, session_id: str, *, token: str, now: datetime) -> Trashed:
        self._rows("UPDATE frames SET token = ? WHERE token = '' AND sid = ?", token, session_id)
        self._rows(
            "UPDATE sessions SET token = ?, deleted = ? WHERE token = '' AND sid = ?",
            token, rfc3339(now), session_id,
        )  # fmt: skip
        return next(trashed for trashed in self.trash() if trashed.token == token)

    def keep(self, session_id: str, *, token: str, now: datetime) -> Trashed:
        self._rows(
            "INSERT INTO frames SELECT ?, sid, seq, frame FROM frames WHERE token = '' AND sid = ?",
            token,
            session_id,
        )
        self._rows(
            "INSERT INTO sessions SELECT ?, sid, last, ? FROM sessions WHERE token = '' AND sid = ?",
            token, rfc3339(now), session_id,
        )  # fmt: skip
        return next(trashed for trashed in self.trash() if trashed.token == token)

    def kept(self, token: str) -> list[Segment]:
        rows = self._rows("SELECT seq, frame FROM frames WHERE token = ? ORDER BY seq", token)
        if not rows:
            raise SnapshotNotFound(f"nothing in the trash has the token {token}")
        return [Segment("rows", 1, rows[-1][0], rewritten=True, read=lambda: b"".join(frame for _, frame in rows))]

    def trash(self) -> list[Trashed]:
        query = (
            "SELECT sid, token, deleted, (SELECT sum(length(frame)) FROM frames f WHERE f.token = s.token)"
            " FROM sessions s WHERE token != '' ORDER BY deleted DESC"
        )
        return [
            Trashed(
                session_id=sid, token=token, deleted_at=datetime.fromisoformat(deleted).astimezone(UTC),
                size_bytes=size or 0,
            )
            for sid, token, deleted, size in self._rows(query)
        ]  # fmt: skip

    def undelete(self, token: str) -> str:
        found = [trashed.session_id for trashed in self.trash() if trashed.token == token]
        if not found:
            raise SnapshotNotFound(f"nothing in the trash has the token {token}")
        if self.segments(found[0]):
            raise Conflict(f"there is a new session {found[0]}", session_id=found[0])
        self._rows("UPDATE frames SET token = '' WHERE token = ?", token)
        self._rows("UPDATE sessions SET token = '', deleted = NULL WHERE token = ?", token)
        return found[0]

    def purge(self, *, older_than: timedelta, now: datetime, only: str | None = None) -> list[Trashed]:
        with self.exclusively(""):
            old = [trashed for trashed in self.trash() if now - trashed.deleted_at >= older_than]
            gone = [trashed for trashed in old if only in (None, trashed.token)]
            for trashed in gone:
                self._rows("DELETE FROM frames WHERE token = ?", trashed.token)
                self._rows("DELETE FROM sessions WHERE token = ?", trashed.token)
        return gone

    def leftovers(self, session_id: str) -> list[str]:
        return []

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()


@pytest.mark.requirement("STORE-KIT", "ORBIT-STORE-SWAP")
class TestSqliteStore(StoreContract):
    test_a_hundred_thousand_messages_are_kept = None  # type: ignore[assignment] # stores on disk show it

    @pytest.fixture
    def anyio_backend(self) -> str:
        """One event loop: the other store classes of the suite run on the other."""
        return "asyncio"

    def open(self, place: Path, clock: Clock) -> SnapshotStore:
        place.mkdir(exist_ok=True)
        return LogStore(SqliteLog(place / "sessions.db"), clock=clock)

    def damage_newest(self, place: Path, session_id: str) -> None:
        log = SqliteLog(place / "sessions.db")
        frame = log.tail(session_id) or b""
        spoilt = frame[:-10] + bytes([frame[-10] ^ 1]) + frame[-9:]
        log._rows("UPDATE frames SET frame = ? WHERE sid = ? AND frame = ?", spoilt, session_id, frame)
        log.close()


class TestStoreInAWrapper(StoreContract):
    """A `FaultyStore` without faults is as good as the store inside."""

    test_a_hundred_thousand_messages_are_kept = None  # type: ignore[assignment] # the inner store's own affair

    @pytest.fixture
    def place(self) -> MemoryLog:
        return MemoryLog()

    @pytest.fixture
    def anyio_backend(self) -> str:
        """One event loop: the other store classes of the suite run on the other."""
        return "trio"

    def open(self, place: MemoryLog, clock: Clock) -> SnapshotStore:
        return FaultyStore(MemoryStore(place, clock=clock))

    def damage_newest(self, place: MemoryLog, session_id: str) -> None:
        *older, newest = place._frames[session_id]
        place._frames[session_id] = (*older, newest[:-10] + bytes([newest[-10] ^ 1]) + newest[-9:])
