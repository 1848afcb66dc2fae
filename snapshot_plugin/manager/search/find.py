"""Questions to the index: which messages hold these words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from snapshot_plugin.manager.search.database import WORDS
from snapshot_plugin.manager.search.rows import ROOM, rows_of, text_of

__all__ = ["END", "START", "Found", "Hit", "Question"]

START, END = "\ue000", "\ue001"
"""Stand around each match in a snippet. No text in the index holds them (see `query.indexable`)."""

_ALL = (0, 1 << 62)
_MATCH = "message MATCH :words AND message.rowid BETWEEN :low AND :high"
_DATED = f"""
message LEFT JOIN said ON said.row = message.rowid JOIN session ON session.key = message.rowid >> {ROOM}
WHERE {_MATCH} AND coalesce(at, changed) BETWEEN :first AND :last
"""
_COUNT = f"SELECT message.rowid >> {ROOM}, count(*) FROM message WHERE {_MATCH} GROUP BY 1"  # noqa: S608 — constants
_COUNT_DATED = f"SELECT session.key, count(*) FROM {_DATED} GROUP BY 1"  # noqa: S608 — constants
_ROWS = f"SELECT message.rowid FROM {_DATED} ORDER BY message.rowid LIMIT :limit"  # noqa: S608 — constants
_SNIPPET = f"SELECT snippet(shown, 0, '{START}', '{END}', '…', 24) FROM shown WHERE shown MATCH :words"  # noqa: S608 — constants


class Hit(NamedTuple):
    """A message that was found. Number 0 is the session itself: its title, task, plan or tags."""

    session_id: str
    number: int
    role: str
    at: datetime | None
    snippet: str


class Found(NamedTuple):
    """The hits that were asked for, and how many each session has, in the order of the question."""

    hits: tuple[Hit, ...]
    counts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to look for, and where.

    `expression` comes from `query.expression`. Only sessions named in `sessions` are looked into, one after the
    other; of each, `each` hits are shown, `limit` of all. `since` and `until` are times: messages that have none
    count as said when their session last changed.
    """

    expression: str
    sessions: Sequence[str]
    limit: int
    each: int
    since: datetime | None = None
    until: datetime | None = None

    def __call__(self, connection: sqlite3.Connection) -> Found:
        """Put the question."""
        keys = dict(connection.execute("SELECT session_id, key FROM session"))
        wanted = [(name, keys[name]) for name in self.sessions if name in keys]
        counted = self._counts(connection, rows_of(wanted[0][1]) if len(wanted) == 1 else _ALL)
        counts = {name: counted[key] for name, key in wanted if key in counted}
        connection.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.shown USING fts5({WORDS})")
        hits: list[Hit] = []
        for name in counts:
            if len(hits) >= self.limit:
                break
            hits += self._hits(connection, name, keys[name], min(self.each, self.limit - len(hits)))
        return Found(tuple(hits), counts)

    def _counts(self, connection: sqlite3.Connection, rows: tuple[int, int]) -> dict[int, int]:
        count = _COUNT if self.since is self.until is None else _COUNT_DATED  # looking at times takes time
        return dict(connection.execute(count, self._values(rows)))

    def _hits(self, connection: sqlite3.Connection, name: str, key: int, limit: int) -> Iterator[Hit]:
        first, last = rows_of(key)
        rows = connection.execute(_ROWS, {**self._values((first, last)), "limit": limit}).fetchall()
        for (row,) in rows:
            text = text_of(connection, row)
            moment = None if text.at is None else datetime.fromtimestamp(text.at, UTC)
            yield Hit(name, row - first, text.role, moment, self._snippet(connection, text[:3]))

    def _snippet(self, connection: sqlite3.Connection, text: tuple[str, str, str]) -> str:
        """The part of a text that matches best. A table with this text alone finds it, as the large one would."""
        connection.execute("DELETE FROM shown")
        connection.execute("INSERT INTO shown (body, tools, role) VALUES (?, ?, ?)", text)
        found = connection.execute(_SNIPPET, {"words": self.expression}).fetchone()
        return str(found[0]).replace("\u200b", "") if found else ""

    def _values(self, rows: tuple[int, int]) -> dict[str, str | float]:
        first = self.since.timestamp() if self.since else float("-inf")
        last = self.until.timestamp() if self.until else float("inf")
        return {"words": self.expression, "low": rows[0], "high": rows[1], "first": first, "last": last}
