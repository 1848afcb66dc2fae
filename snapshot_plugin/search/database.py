"""The file of the index: created, opened, and deleted if it cannot be used. Its tables, and how they are read.

For a plain store it is an SQLite file that only its owner can read. For an encrypted store the index is in
memory, and its file is encrypted with a key of the store: no plain text of a session is written to disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.model.meta import SnapshotMeta

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = [
    "ROOM",
    "TOKENIZER",
    "IndexDatabase",
    "cache_list",
    "cached_list",
    "heads",
    "index_path",
    "rows_of",
    "transaction"
]  # fmt: skip

_APPLICATION = 0x61534E50
_VERSION = 7
"""Incremented when the tables or their content change. An index of another version is rebuilt."""
_PATIENCE = 30.0
_MEMORY = 32 << 20
"""Bytes of words that FTS5 buffers: a transaction below this size is one write."""
_SEGMENTS = 16
"""How many segments FTS5 collects before it merges them. Each merge reads and writes all their words again."""
ROOM = 24
"""A row number is the session's key, followed by this many bits for the message."""
TOKENIZER = "tokenize = 'unicode61 remove_diacritics 2'"
_SEALED = b"asnap search index 1"
"""What the seal of an encrypted index is bound to."""
_TABLES = f"""
CREATE TABLE store (id TEXT NOT NULL);
CREATE TABLE session (
    key INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL UNIQUE,
    seq INTEGER NOT NULL, root TEXT NOT NULL, changed INTEGER NOT NULL, facts TEXT NOT NULL, topics TEXT,
    lines INTEGER NOT NULL, digest BLOB NOT NULL
);
CREATE TABLE listing (mark TEXT NOT NULL, metas BLOB NOT NULL);
CREATE VIRTUAL TABLE message USING fts5(body, tools, role, at UNINDEXED, {TOKENIZER}, columnsize = 0);
"""


def index_path(cache: Path, name: str, *, sealed: bool) -> Path:
    """The file of the index of the store called *name*."""
    file = hashlib.sha256(name.encode()).hexdigest()[:32]
    return cache / f"search-{file}.{'sealed' if sealed else 'db'}"


class IndexDatabase:
    """One index: its connection and its file. Without a *path* it is in memory only.

    A file that is damaged, of another version, or of another store is deleted silently: all of it can be
    rebuilt from the store.
    """

    def __init__(self, path: Path | None, *, store_id: str, keys: SessionKeys | None = None) -> None:
        self._path, self._store_id, self._keys = path, store_id, keys
        self.connection = self._opened()

    @property
    def is_kept(self) -> bool:
        """Whether the index has a file."""
        return self._path is not None

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._checked(self._connected())
        except (sqlite3.DatabaseError, SnapshotError, ValueError):
            self._remove()
            return self._checked(self._connected())

    def _connected(self) -> sqlite3.Connection:
        if self._path is None:
            return _connect(":memory:")
        if self._keys is None:
            _make_private(self._path)
            with _closed_on_error(_connect(str(self._path))) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                return connection
        return self._connected_to_sealed(self._path, self._keys)

    def _connected_to_sealed(self, path: Path, keys: SessionKeys) -> sqlite3.Connection:
        _make_place(path)
        with _closed_on_error(_connect(":memory:")) as connection:
            with contextlib.suppress(FileNotFoundError):
                connection.deserialize(keys.open_record(path.read_bytes(), _SEALED))
            return connection

    def _checked(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        with _closed_on_error(connection):
            if _is_empty(connection):
                with transaction(connection):
                    if _is_empty(connection):  # another process may have created it
                        _create(connection, self._store_id)
            _check_identity(connection, self._store_id)
        return connection

    def clear(self) -> None:
        """Delete the index and create an empty one."""
        self.connection.close()
        self._remove()
        self.connection = self._opened()

    def _remove(self) -> None:
        if self._path:
            for suffix in ("", "-wal", "-shm", "-journal"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def keep(self) -> None:
        """Write an encrypted index to its file. A plain one is already there."""
        if self._path is None or self._keys is None:
            return
        from snapshot_plugin.system.files import replace_file  # noqa: PLC0415 — for encrypted stores alone

        replace_file(self._path, self._keys.seal_record(self.connection.serialize(), _SEALED))

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in one write transaction, which is rolled back if the block raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def heads(connection: sqlite3.Connection) -> dict[str, tuple[int, str]]:
    """The indexed snapshot of each session: its number and root."""
    found = connection.execute("SELECT session_id, seq, root FROM session")
    return {session_id: (seq, root) for session_id, seq, root in found}


def rows_of(key: int) -> tuple[int, int]:
    """The first and the last possible row number of a session."""
    return key << ROOM, ((key + 1) << ROOM) - 1


def cached_list(connection: sqlite3.Connection, mark: str) -> list[SnapshotMeta] | None:
    """The store's list as it was when the store had this *mark* (`store.look`); None if it is not known."""
    try:
        found = connection.execute("SELECT metas FROM listing WHERE mark = ?", (mark,)).fetchone()
        return [SnapshotMeta.told(meta) for meta in json.loads(found[0])] if found else None
    except (sqlite3.DatabaseError, ValueError, TypeError, AttributeError):
        return None


def cache_list(connection: sqlite3.Connection, mark: str, metas: Sequence[SnapshotMeta]) -> None:
    """Keep the store's list under *mark*, which was taken before the list was read and is therefore never newer."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 — mostly the list is known

    listed = json.dumps([to_jsonable_python(meta) for meta in metas]).encode()
    connection.execute("DELETE FROM listing")
    connection.execute("INSERT INTO listing (mark, metas) VALUES (?, ?)", (mark, listed))


def _connect(place: str) -> sqlite3.Connection:
    made = sqlite3.connect(place, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    with _closed_on_error(made) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")  # never write plain text of an encrypted store to disk
    return connection


@contextlib.contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def _create(connection: sqlite3.Connection, store_id: str) -> None:
    for statement in filter(str.strip, _TABLES.split(";")):
        connection.execute(statement)
    settings = {"hashsize": _MEMORY, "automerge": _SEGMENTS, "crisismerge": 2 * _SEGMENTS}
    connection.executemany("INSERT INTO message (message, rank) VALUES (?, ?)", settings.items())
    connection.execute("INSERT INTO store VALUES (?)", (store_id,))
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _check_identity(connection: sqlite3.Connection, store_id: str) -> None:
    marks = tuple(_pragma(connection, name) for name in ("application_id", "user_version"))
    owner = connection.execute("SELECT id FROM store").fetchone()
    if (*marks, owner) != (_APPLICATION, _VERSION, (store_id,)):
        raise sqlite3.DatabaseError("an index of something else")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    found: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return found


def _make_private(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        _make_place(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def _make_place(path: Path) -> None:
    from snapshot_plugin.system.files import make_private_dir  # noqa: PLC0415 — mostly it is there

    make_private_dir(path.parent)
