"""A backend that somebody else might write: frames as rows of SQLite. It runs the public contract suite."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import MemoryStore, StoreUnavailable
from snapshot_plugin.codec.frame import Header, read_header
from snapshot_plugin.codec.scan import last_frame
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.store.log import (
    Area,
    FileChanged,
    FrameLog,
    Segment,
    SessionEntry,
    SmallFile,
    Tip,
    check_end,
    file_of,
    tip_of,
)
from snapshot_plugin.store.memory import MemoryLog
from snapshot_plugin.store.trash import no_such_entry, taken
from snapshot_plugin.testing import FaultyStore, StoreContract

Clock = Callable[[], datetime]

SCHEMA = """
CREATE TABLE IF NOT EXISTS frames (area TEXT, sid TEXT, seq INTEGER, frame BLOB, PRIMARY KEY (area, sid, seq));
CREATE TABLE IF NOT EXISTS sessions (area TEXT, sid TEXT, last INTEGER, PRIMARY KEY (area, sid));
CREATE TABLE IF NOT EXISTS files (name TEXT PRIMARY KEY, data BLOB);
"""
STORED = "SELECT last, frame FROM sessions LEFT JOIN frames USING (area, sid) WHERE area = ? AND sid = ?"


class SqliteLog(FrameLog):
    """`FrameLog` in a database: one row a frame, with the area that it is in."""

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

    def segments(self, session_id: str, area: str = "") -> list[Segment]:
        """One query, so that the numbers and the frames are of the same moment."""
        rows = self._rows(f"{STORED} ORDER BY seq", area, session_id)
        frames = b"".join(frame for _last, frame in rows if frame is not None)
        name = area or f"{len(rows)} rows"  # what replaces them has another name
        return [Segment(name, 1, last, rewritten=True, read=partial(bytes, frames)) for last, _ in rows[:1]]

    def tip(self, session_id: str) -> Tip | None:
        for last, frame in self._rows(f"{STORED} ORDER BY seq DESC LIMIT 1", "", session_id):
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
        # fresh: a frame with that number was never acknowledged
        insert = "INSERT OR REPLACE" if fresh else "INSERT"
        self._rows(f"{insert} INTO frames VALUES ('', ?, ?, ?)", session_id, header.hi, frame)
        self._rows("INSERT OR REPLACE INTO sessions VALUES ('', ?, ?)", session_id, header.hi)
        return False

    def tail(self, session_id: str) -> bytes | None:
        rows = self._rows(f"{STORED} ORDER BY seq DESC LIMIT 1", "", session_id)
        return next((frame for _last, frame in rows), None)

    def replace(self, session_id: str, old: Sequence[Segment], frames: Sequence[bytes], hi: int) -> None:
        self._rows("DELETE FROM frames WHERE area = '' AND sid = ?", session_id)
        for frame in frames:
            self._rows("INSERT INTO frames VALUES ('', ?, ?, ?)", session_id, read_header(frame)[0].hi, frame)
        self._rows("INSERT OR REPLACE INTO sessions VALUES ('', ?, ?)", session_id, hi)

    def sessions(self, only: str | None = None, labels: Mapping[str, str] | None = None) -> list[SessionEntry]:
        query = "SELECT sid, sum(length(frame)) FROM frames WHERE area = '' GROUP BY sid"
        return [entry for row in self._rows(query) if only in (None, (entry := SessionEntry(*row)).session_id)]

    def areas(self, under: str, session_id: str | None = None) -> list[Area]:
        query = (
            "SELECT sid, area, coalesce(sum(length(frame)), 0) FROM sessions LEFT JOIN frames USING (area, sid)"
            " WHERE area GLOB ? GROUP BY sid, area"
        )
        return [Area(*row) for row in self._rows(query, f"{under}/*") if session_id in (None, row[0])]

    def copy(self, session_id: str, segments: Sequence[Segment], area: str) -> str:
        for columns in (
            "frames SELECT ?, sid, seq, frame FROM frames",
            "sessions SELECT ?, sid, last FROM sessions",
        ):
            self._rows(f"INSERT INTO {columns} WHERE area = '' AND sid = ?", area, session_id)
        return area

    def move(self, session_id: str, source: str, target: str) -> None:
        if self.segments(session_id, target):
            raise taken(session_id)
        if not self.segments(session_id, source):
            raise no_such_entry(source)
        for table in ("frames", "sessions"):
            self._rows(f"UPDATE {table} SET area = ? WHERE area = ? AND sid = ?", target, source, session_id)

    def remove(self, areas: Sequence[Area]) -> list[Area]:
        with self.exclusively(""):
            gone = [area for area in areas if self.segments(area.session_id, area.name)]
            for area, table in product(gone, ("frames", "sessions")):
                self._rows(f"DELETE FROM {table} WHERE sid = ? AND area = ?", *area[:2])
        return gone

    def get(self, name: str) -> SmallFile | None:
        return next((file_of(data) for (data,) in self._rows("SELECT data FROM files WHERE name = ?", name)), None)

    def put(self, name: str, data: bytes, tag: str | None) -> str:
        with self.exclusively(""):
            present = self.get(name)
            if (present.tag if present else None) != tag:
                raise FileChanged(name)
            self._rows("INSERT OR REPLACE INTO files VALUES (?, ?)", name, data)
        return file_of(data).tag

    def names(self, under: str) -> list[str]:
        rows = self._rows("SELECT name FROM files WHERE name GLOB ?", f"{under}/*")
        return [name.removeprefix(f"{under}/") for (name,) in rows]

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
        *older, newest = place._frames[session_id, ""]
        place._frames[session_id, ""] = (*older, newest[:-10] + bytes([newest[-10] ^ 1]) + newest[-9:])
