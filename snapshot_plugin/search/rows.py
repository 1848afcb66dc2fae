"""The rows of the index: which belong to which session, and the text of each.

The FTS5 table stores no text. The text is stored in compressed chunks of a few messages: it is needed for
snippets, and to delete rows from the FTS5 table.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["CHUNK", "ROOM", "Text", "Texts", "heads", "packed", "rows_of", "texts_of"]

ROOM = 24
"""A row number is the session's key, followed by this many bits for the message."""
CHUNK = 32
"""Texts per compressed chunk."""


class Text(NamedTuple):
    """The indexed text of one message; `at` is in seconds since 1970."""

    body: str
    tools: str
    role: str
    at: int | None


def heads(connection: sqlite3.Connection) -> dict[str, tuple[int, str]]:
    """The indexed snapshot of each session: its number and root."""
    found = connection.execute("SELECT session_id, seq, root FROM session")
    return {session_id: (seq, root) for session_id, seq, root in found}


def rows_of(key: int) -> tuple[int, int]:
    """The first and the last possible row number of a session."""
    return key << ROOM, ((key + 1) << ROOM) - 1


class Texts:
    """The text of each row, by row number. Neighbouring rows are decompressed together."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._chunk, self._texts = -1, [Text("", "", "", None)]

    def __getitem__(self, row: int) -> Text:
        chunk = row - row % CHUNK
        if chunk != self._chunk:
            select = "SELECT texts FROM chunk WHERE row = ?"
            (data,) = self._connection.execute(select, (chunk,)).fetchone() or (b"",)
            self._chunk, self._texts = chunk, _unpacked(data)
        if row - chunk >= len(self._texts):
            raise sqlite3.DatabaseError("a chunk of texts is too short")
        return self._texts[row - chunk]


def texts_of(connection: sqlite3.Connection, key: int) -> Iterator[Text]:
    """All texts of a session, in order."""
    select = "SELECT texts FROM chunk WHERE row BETWEEN ? AND ? ORDER BY row"
    for (data,) in connection.execute(select, rows_of(key)).fetchall():
        yield from _unpacked(data)


def packed(texts: Sequence[Text]) -> bytes:
    """Compress texts into one chunk: a line of JSON, then the bodies one after the other."""
    from snapshot_plugin.codec.compress import quick_zlib  # noqa: PLC0415 — only to write

    head = json.dumps([(len(text.body), *text[1:]) for text in texts])
    return quick_zlib("".join((head, "\n", *(text.body for text in texts))).encode())


def _unpacked(data: bytes) -> list[Text]:
    try:
        head, _, bodies = zlib.decompress(data).decode().partition("\n")
        texts, start = [], 0
        for length, *rest in json.loads(head):
            texts.append(Text(bodies[start : start + length], *rest))
            start += length
    except (ValueError, TypeError, zlib.error) as error:
        raise sqlite3.DatabaseError("a chunk of texts is damaged") from error
    return texts
