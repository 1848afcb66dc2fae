"""What is put into the index: of each session its head, its facts, and the words and text of its messages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import anyio.to_thread

from snapshot_plugin.model.searchable import Passage, passages
from snapshot_plugin.search.facts import Facts, facts_of, pack, unpack
from snapshot_plugin.search.query import indexable, marked_words
from snapshot_plugin.search.rows import CHUNK, Text, packed, rows_of, texts_of

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Entry", "all_facts", "drop", "put", "read_entry", "texts_in"]


class Entry(NamedTuple):
    """A session, read and ready to be put into the index. The first text is about the session itself."""

    meta: SnapshotMeta
    texts: Sequence[Text]
    facts: str
    size: int


async def read_entry(store: SnapshotStore, meta: SnapshotMeta) -> Entry:
    """Read a session as the index wants it; raises what the store raises."""
    snapshot = (await store.read(meta.session_id)).snapshot
    history = await store.history(meta.session_id)
    return await anyio.to_thread.run_sync(_entry, meta, snapshot, history)


def _entry(meta: SnapshotMeta, snapshot: SessionSnapshot, history: Sequence[SnapshotMeta]) -> Entry:
    found = list(passages(snapshot))
    texts = _texts(snapshot, found)
    return Entry(meta, texts, pack(facts_of(snapshot, history, found)), sum(len(text.body) for text in texts))


def texts_in(snapshot: SessionSnapshot) -> Sequence[Text]:
    """What is indexed of a snapshot: first what is about the session itself, then each message."""
    return _texts(snapshot, passages(snapshot))


def _texts(snapshot: SessionSnapshot, found: Iterable[Passage]) -> Sequence[Text]:
    times = [None, *(_seconds(message.timestamp) for message in snapshot.messages)]
    return [
        Text(indexable(passage.body), indexable(passage.tools), passage.role, at)
        for passage, at in zip(found, times, strict=True)
    ]


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


def all_facts(connection: sqlite3.Connection) -> Mapping[str, Facts]:
    """The facts of every session in the index."""
    found = connection.execute("SELECT session_id, facts FROM session")
    return {session_id: unpack(facts) for session_id, facts in found}


def put(connection: sqlite3.Connection, entry: Entry) -> None:
    """Make the index say what the session says now. Only what stands behind the first difference is written."""
    meta = entry.meta
    head = (meta.seq, meta.root, int(meta.changed_at.timestamp()), entry.facts)
    known = connection.execute("SELECT key FROM session WHERE session_id = ?", (meta.session_id,)).fetchone()
    if known is None:
        insert = "INSERT INTO session (session_id, seq, root, changed, facts) VALUES (?, ?, ?, ?, ?)"
        key = int(connection.execute(insert, (meta.session_id, *head)).lastrowid or 0)
    else:
        key = known[0]
        update = "UPDATE session SET seq = ?, root = ?, changed = ?, facts = ? WHERE key = ?"
        connection.execute(update, (*head, key))
    _replace(connection, key, entry.texts)


def drop(connection: sqlite3.Connection, session_id: str) -> None:
    """Take a session out of the index."""
    for (key,) in connection.execute("SELECT key FROM session WHERE session_id = ?", (session_id,)).fetchall():
        _replace(connection, key, ())
        connection.execute("DELETE FROM session WHERE key = ?", (key,))


def _replace(connection: sqlite3.Connection, key: int, texts: Sequence[Text]) -> None:
    there = list(texts_of(connection, key))
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(there, texts, strict=False)))
    first, last = rows_of(key)
    forget = "INSERT INTO message (message, rowid, words) VALUES ('delete', ?, ?)"
    connection.executemany(forget, _numbered(there, first, same))
    connection.execute("DELETE FROM said WHERE row BETWEEN ? AND ?", (first + same, last))
    learn = "INSERT INTO message (rowid, words) VALUES (?, ?)"
    connection.executemany(learn, _numbered(texts, first, same))
    times = [(first + n, text.at) for n, text in enumerate(texts[same:], same) if text.at is not None]
    connection.executemany("INSERT INTO said (row, at) VALUES (?, ?)", times)
    _replace_chunks(connection, rows_of(key), texts, same - same % CHUNK)


def _numbered(texts: Sequence[Text], first: int, start: int) -> Iterator[tuple[int, str]]:
    for n, text in enumerate(texts[start:], start):
        yield first + n, f"{text.body}\n{marked_words(text.tools, text.role)}"


def _replace_chunks(
    connection: sqlite3.Connection, rows: tuple[int, int], texts: Sequence[Text], start: int
) -> None:
    connection.execute("DELETE FROM chunk WHERE row BETWEEN ? AND ?", (rows[0] + start, rows[1]))
    chunks = ((rows[0] + n, packed(texts[n : n + CHUNK])) for n in range(start, len(texts), CHUNK))
    connection.executemany("INSERT INTO chunk (row, texts) VALUES (?, ?)", chunks)
