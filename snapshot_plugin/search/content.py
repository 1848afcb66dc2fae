"""The content of the index: for each session its newest snapshot's number, its facts, and its text."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, NamedTuple

import anyio.to_thread

from snapshot_plugin.codec.document import parsed
from snapshot_plugin.errors import SnapshotCorrupted
from snapshot_plugin.model.statistics import TimeSlot, slots_of
from snapshot_plugin.model.topics import keywords
from snapshot_plugin.search.database import rows_of, transaction
from snapshot_plugin.search.passages import Text, about, passages
from snapshot_plugin.search.query import indexable
from snapshot_plugin.store.views import stored_lines

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "Facts",
    "IndexEntry",
    "IndexedLines",
    "all_facts",
    "all_indexed",
    "drop",
    "put",
    "read_entry",
    "texts_in",
]

_BEGIN = """
INSERT INTO session (session_id, seq, root, changed, facts, lines, digest) VALUES (?, 0, '', 0, '', 0, '')
ON CONFLICT DO NOTHING
"""
_UPDATE = """
UPDATE session SET seq = ?, root = ?, changed = ?, facts = ?, lines = ?, digest = ?, topics = NULL WHERE key = ?
"""


class IndexedLines(NamedTuple):
    """How many messages of a session the index has, and the digest of their lines."""

    messages: int = 0
    digest: bytes = b""


class IndexEntry(NamedTuple):
    """A session as it is written to the index. The first text is about the session itself."""

    meta: SnapshotMeta
    texts: Sequence[Text]
    """The first text, and the messages that the index does not have yet."""
    kept: IndexedLines
    now: IndexedLines
    history: Sequence[SnapshotMeta] = ()
    sizes: Sequence[int] = ()
    """How many bytes the line of each message has."""

    @property
    def size(self) -> int:
        """The number of characters to write."""
        return sum(len(text.body) for text in self.texts)


async def read_entry(store: SnapshotStore, meta: SnapshotMeta, before: IndexedLines | None) -> IndexEntry:
    """Read a session, without the messages that the index has (*before*). Raises what the store raises."""
    _, session, lines = await stored_lines(store, meta.session_id)
    history = await store.history(meta.session_id)
    return await anyio.to_thread.run_sync(_entry, meta, session, lines, history, before or IndexedLines())


def _entry(
    meta: SnapshotMeta,
    session: SessionSnapshot,
    lines: Sequence[bytes],
    history: Sequence[SnapshotMeta],
    before: IndexedLines,
) -> IndexEntry:
    kept = before if before.digest == _digest(lines[: before.messages]) else IndexedLines()
    try:
        texts = [about(session, history), *passages(parsed(line)["message"] for line in lines[kept.messages :])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotCorrupted("a stored message cannot be read", session_id=meta.session_id) from error
    now = IndexedLines(len(lines), _digest(lines))
    return IndexEntry(meta, [_indexable(text) for text in texts], kept, now, history, [*map(len, lines)])


def _digest(lines: Sequence[bytes]) -> bytes:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line)
        digest.update(b"\n")
    return digest.digest()


def texts_in(snapshot: SessionSnapshot) -> Sequence[Text]:
    """The texts of a snapshot: the first is about the session itself, then one per message."""
    found = [about(snapshot), *passages(message.raw() for message in snapshot.messages)]
    return [_indexable(text) for text in found]


def _indexable(text: Text) -> Text:
    if text.body.isascii() and text.tools.isascii() and "\0" not in text.body:
        return text
    return Text(indexable(text.body), indexable(text.tools), text.role, text.at)


def all_indexed(connection: sqlite3.Connection) -> Mapping[str, IndexedLines]:
    """The indexed messages of each session."""
    found = connection.execute("SELECT session_id, lines, digest FROM session")
    return {session_id: IndexedLines(lines, digest) for session_id, lines, digest in found}


def _indexed(connection: sqlite3.Connection, session_id: str) -> IndexedLines:
    select = "SELECT lines, digest FROM session WHERE session_id = ?"
    return IndexedLines(*(connection.execute(select, (session_id,)).fetchone() or ()))


def all_facts(connection: sqlite3.Connection) -> Mapping[str, Facts]:
    """The facts of every session in the index. Missing topics are computed and stored."""
    found = connection.execute("SELECT key, session_id, facts, topics FROM session").fetchall()
    new = {key: json.dumps(_topics(connection, key)) for key, _, _, topics in found if topics is None}
    if new:
        with transaction(connection):
            update = "UPDATE session SET topics = ? WHERE key = ?"
            connection.executemany(update, [(topics, key) for key, topics in new.items()])
    return {
        session_id: _unpack(facts)._replace(topics=tuple(json.loads(topics or new[key])))
        for key, session_id, facts, topics in found
    }


def _topics(connection: sqlite3.Connection, key: int) -> list[str]:
    texts = enumerate(_texts_of(connection, key))
    return keywords(text.body.replace("\u200b", "") for number, text in texts if text.role == "user" or not number)


def put(connection: sqlite3.Connection, entry: IndexEntry) -> bool:
    """Update a session in the index. Only texts that differ are written.

    Returns False, and writes nothing, if another process updated the session since *entry* was read: read it
    again.
    """
    session_id = entry.meta.session_id
    if entry.kept.messages and _indexed(connection, session_id) != entry.kept:
        return False
    connection.execute(_BEGIN, (session_id,))
    ((key,),) = connection.execute("SELECT key FROM session WHERE session_id = ?", (session_id,))
    there = _texts_of(connection, key)
    texts = [entry.texts[0], *there[1 : entry.kept.messages + 1], *entry.texts[1:]]
    facts = _pack(_facts_of(entry.history, entry.sizes, [text.at for text in texts[1:]]))
    changed = int(entry.meta.changed_at.timestamp())
    connection.execute(_UPDATE, (entry.meta.seq, entry.meta.root, changed, facts, *entry.now, key))
    _replace(connection, key, there, texts)
    return True


def drop(connection: sqlite3.Connection, session_id: str) -> None:
    """Remove a session from the index."""
    for (key,) in connection.execute("SELECT key FROM session WHERE session_id = ?", (session_id,)).fetchall():
        _replace(connection, key, _texts_of(connection, key), ())
        connection.execute("DELETE FROM session WHERE key = ?", (key,))


def _texts_of(connection: sqlite3.Connection, key: int) -> list[Text]:
    """All texts of a session, in order."""
    select = "SELECT body, tools, role, at FROM message WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
    return [Text(*row) for row in connection.execute(select, rows_of(key))]


def _replace(connection: sqlite3.Connection, key: int, there: Sequence[Text], texts: Sequence[Text]) -> None:
    """Replace the rows of a session: *there* is the old text, *texts* the new one."""
    first, _ = rows_of(key)
    changed = [n for n, (old, new) in enumerate(zip_longest(there, texts)) if old != new]
    gone = [(first + n,) for n in changed if n < len(there)]
    new = [(first + n, *texts[n]) for n in changed if n < len(texts)]
    connection.executemany("DELETE FROM message WHERE rowid = ?", gone)
    connection.executemany("INSERT INTO message (rowid, body, tools, role, at) VALUES (?, ?, ?, ?, ?)", new)


# What statistics need ----------------------------------------------------------------------------------------


class Facts(NamedTuple):
    """A session's activity over time, its topics, and its size as plain JSON."""

    slots: Sequence[TimeSlot] = ()
    plain_bytes: int = 0
    """The size of its newest snapshot as plain JSON lines."""
    copies_bytes: int = 0
    """The estimated size of all its snapshots as plain JSON, each in a file of its own."""
    topics: Sequence[str] = ()
    """Computed when statistics are requested; searches do not need them."""


def _facts_of(history: Sequence[SnapshotMeta], sizes: Sequence[int], times: Sequence[int | None]) -> Facts:
    """The facts of a session without its topics. *history* is newest first; *sizes* are those of its lines."""
    ends = [0, *accumulate(size + 1 for size in sizes)]
    moments = (None if at is None else datetime.fromtimestamp(at, UTC) for at in times)
    copies = sum(ends[min(meta.messages, len(ends) - 1)] for meta in history)
    return Facts(slots_of(reversed(history), moments), ends[-1], copies)


def _pack(facts: Facts) -> str:
    """Serialise the facts."""
    slots = [(int(slot.start.timestamp()), *slot[1:]) for slot in facts.slots]
    return json.dumps([slots, facts.plain_bytes, facts.copies_bytes, list(facts.topics)])


def _unpack(text: str) -> Facts:
    """Parse what `_pack` returned."""
    slots, plain_bytes, copies_bytes, topics = json.loads(text)
    times = (TimeSlot(datetime.fromtimestamp(start, UTC), *rest) for start, *rest in slots)
    return Facts(tuple(times), plain_bytes, copies_bytes, tuple(topics))
