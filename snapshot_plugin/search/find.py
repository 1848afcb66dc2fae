"""Queries on the index: which messages contain these words."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from snapshot_plugin.search.database import ROOM, TOKENIZER, rows_of

__all__ = ["END", "START", "Hit", "SearchQuery", "SearchResult"]

START, END = "\ue000", "\ue001"
"""Mark the beginning and end of each match in a snippet. No indexed text contains them (see `query.indexable`)."""

_MATCH = "message MATCH :words AND message.rowid BETWEEN :low AND :high"
_ANY_TIME = f"message WHERE {_MATCH}"
_IN_TIME = f"""
message JOIN session ON session.key = message.rowid >> {ROOM}
WHERE {_MATCH} AND coalesce(message.at, changed) BETWEEN :first AND :last
"""
_ANY_SESSION = (0, 1 << 62)
_CHOSEN = f" AND message.rowid >> {ROOM} IN (SELECT value FROM json_each(:keys))"  # noqa: S608 — constants
_SNIPPET = f"SELECT snippet(shown, 0, '{START}', '{END}', '…', 24) FROM shown WHERE shown MATCH ?"  # noqa: S608 — as above
_PIECE, _OVERLAP, _PIECES, _BEGINNING = 32_768, 1_024, 64, 160
"""A long text is searched in pieces: the size of a piece, its overlap with the next, the most pieces, and how
many characters are shown if no single piece matches."""


class Hit(NamedTuple):
    """A message that matches. Number 0 is the session itself: its title, task, plan or tags."""

    session_id: str
    number: int
    role: str
    at: datetime | None
    snippet: str


class SearchResult(NamedTuple):
    """The hits to show, how many hits each of their sessions has, and the totals of hits and sessions."""

    hits: tuple[Hit, ...]
    counts: dict[str, int]
    total_hits: int
    total_sessions: int


@dataclass(frozen=True, kw_only=True)
class SearchQuery:
    """What to search for, and where.

    `expression` and `narrowing` come from `query`. Only `sessions` are searched, in this order; at most `each`
    hits of a session are shown, and at most `limit` in all. `since` and `until` limit the time of a message; a
    message without a time has that of its session's last change.
    """

    expression: str
    narrowing: str = ""
    sessions: Sequence[str]
    limit: int
    each: int
    since: datetime | None = None
    until: datetime | None = None

    def __call__(self, connection: sqlite3.Connection) -> SearchResult:
        """Run the query."""
        asked = _RunningQuery(self, connection)
        keys = dict(connection.execute("SELECT session_id, key FROM session"))
        wanted = {name: keys[name] for name in self.sessions if name in keys}
        everything = len(wanted) == len(keys)
        total, having = asked.totals(None if everything else list(wanted.values()))
        hits: list[Hit] = []
        counts: dict[str, int] = {}
        for name, key in wanted.items():
            if len(hits) < self.limit and key in having:
                counts[name] = asked.count(key)
                hits += asked.hits(name, key, min(self.each, self.limit - len(hits)))
        return SearchResult(tuple(hits), counts, total, len(having))


class _RunningQuery:
    """A query being run on one connection."""

    def __init__(self, question: SearchQuery, connection: sqlite3.Connection) -> None:
        first, last = question.since, question.until
        self._connection = connection
        self._expression = question.expression
        self._source = _ANY_TIME if first is last is None else _IN_TIME  # the join is slower
        self._values: dict[str, Any] = {
            "words": f"body : ({question.expression}){question.narrowing}",
            "first": first.timestamp() if first else float("-inf"),
            "last": last.timestamp() if last else float("inf"),
        }
        connection.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.shown USING fts5(body, {TOKENIZER})")

    def totals(self, keys: Sequence[int] | None) -> tuple[int, frozenset[int]]:
        """The number of hits in the sessions with these keys (None: in all), and the keys of those with hits."""
        rows = rows_of(keys[0]) if keys and len(keys) == 1 else _ANY_SESSION
        chosen = "" if keys is None else _CHOSEN
        found = self._select(f"DISTINCT message.rowid >> {ROOM}", rows, chosen, keys=json.dumps(keys))
        ((total,),) = self._select("count(*)", rows, chosen, keys=json.dumps(keys))
        return total, frozenset(key for (key,) in found)

    def count(self, key: int) -> int:
        """The number of hits of a session."""
        ((count,),) = self._select("count(*)", rows_of(key))
        return int(count)

    def hits(self, name: str, key: int, limit: int) -> Iterator[Hit]:
        """The first hits of a session."""
        rows = rows_of(key)
        columns = "message.rowid, message.body, message.role, message.at"
        for row, body, role, at in self._select(columns, rows, " ORDER BY message.rowid LIMIT :limit", limit=limit):
            moment = None if at is None else datetime.fromtimestamp(at, UTC)
            yield Hit(name, row - rows[0], role, moment, self._snippet(body))

    def _select(self, what: str, rows: tuple[int, int], rest: str = "", **values: Any) -> list[Any]:
        select = f"SELECT {what} FROM {self._source}{rest}"  # noqa: S608 — constants of this module
        values |= {**self._values, "low": rows[0], "high": rows[1]}
        return self._connection.execute(select, values).fetchall()

    def _snippet(self, body: str) -> str:
        """The best matching part of a text; of a long text, the best part of the first piece that matches.

        FTS5 needs time quadratic in the number of matches, so a long log would take hours as a whole.
        """
        for start in range(0, min(len(body), _PIECE * _PIECES) or 1, _PIECE):
            if found := self._snippet_of(body[start : start + _PIECE + _OVERLAP]):
                return found
        return body[:_BEGINNING].replace("\u200b", "") + "…" if len(body) > _PIECE else ""

    def _snippet_of(self, piece: str) -> str:
        """The snippet of one piece, computed in a table that holds nothing else."""
        self._connection.execute("DELETE FROM shown")
        self._connection.execute("INSERT INTO shown VALUES (?)", (piece,))
        found = self._connection.execute(_SNIPPET, (self._expression,)).fetchone()
        return str(found[0]).replace("\u200b", "") if found else ""
