"""The rows of the index: which belong to which session, and the text of each.

The table of words keeps no text of its own, which would take most of the room; the text is kept in chunks of a few
messages, compressed, to be shown, and to tell the words what to forget.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["CHUNK", "ROOM", "Text", "heads", "packed", "rows_of", "text_of", "texts_of"]

ROOM = 24
"""A row's number is the session's key, then this many bits for the message."""
CHUNK = 32
"""How many texts are compressed together."""

_LEVEL = 4


class Text(NamedTuple):
    """What is indexed of one message; `at` is in seconds since 1970."""

    body: str
    tools: str
    role: str
    at: int | None


def heads(connection: sqlite3.Connection) -> dict[str, tuple[int, str]]:
    """Which snapshot of each session is indexed."""
    found = connection.execute("SELECT session_id, seq, root FROM session")
    return {session_id: (seq, root) for session_id, seq, root in found}


def rows_of(key: int) -> tuple[int, int]:
    """The first and the last number that rows of a session can have."""
    return key << ROOM, ((key + 1) << ROOM) - 1


def text_of(connection: sqlite3.Connection, row: int) -> Text:
    """The text of one row."""
    chunk = row - row % CHUNK
    (data,) = connection.execute("SELECT texts FROM chunk WHERE row = ?", (chunk,)).fetchone() or (b"",)
    texts = _unpacked(data)
    if row - chunk >= len(texts):
        raise sqlite3.DatabaseError("a chunk of texts is too short")
    return texts[row - chunk]


def texts_of(connection: sqlite3.Connection, key: int) -> Iterator[Text]:
    """All texts of a session, in order."""
    select = "SELECT texts FROM chunk WHERE row BETWEEN ? AND ? ORDER BY row"
    for (data,) in connection.execute(select, rows_of(key)).fetchall():
        yield from _unpacked(data)


def packed(texts: Sequence[Text]) -> bytes:
    """Texts as one chunk."""
    return zlib.compress(json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode(), _LEVEL)


def _unpacked(data: bytes) -> list[Text]:
    try:
        return [Text(*each) for each in json.loads(zlib.decompress(data))]
    except (ValueError, TypeError, zlib.error) as error:
        raise sqlite3.DatabaseError("a chunk of texts is damaged") from error
