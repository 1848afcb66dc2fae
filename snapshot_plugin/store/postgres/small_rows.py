"""Small files as rows. The marker, the keys and the operation log have had tables of their own since 0.2.0."""

from __future__ import annotations

from snapshot_plugin.store.keychain import KEYSET
from snapshot_plugin.store.log import FileChanged, FrameLog, SmallFile, file_of
from snapshot_plugin.store.marker import MARKER
from snapshot_plugin.store.postgres.database import Database
from snapshot_plugin.store.postgres.schema import create_tables, read_marker
from snapshot_plugin.store.small_files import KEYS, OPERATIONS, decoded_keys, encoded_keys

__all__ = ["SmallRows"]


class SmallRows(FrameLog):
    """The part of `FrameLog` that keeps small files."""

    _database: Database

    def get(self, name: str) -> SmallFile | None:
        """See `FrameLog`. The marker is there once the tables are up to date."""
        if name == MARKER:
            data = read_marker(self._database)
        elif name == KEYS:
            rows = self._database.rows("SELECT name, data FROM {keys}")
            data = encoded_keys({key: bytes(value) for key, value in rows}) if rows else None
        elif name == OPERATIONS:
            rows = self._database.rows("SELECT line FROM {operations} ORDER BY n")
            data = b"".join(bytes(line) + b"\n" for (line,) in rows) if rows else None
        else:
            rows = self._database.rows("SELECT value FROM {meta} WHERE name = %s", f"file {name}")
            data = bytes(rows[0][0]) if rows else None
        return file_of(data) if data is not None else None

    def put(self, name: str, data: bytes, tag: str | None) -> str:
        """See `FrameLog`. One transaction; the marker comes with the tables, and never changes."""
        if name == MARKER:
            if tag is not None or not create_tables(self._database, data):
                raise FileChanged(name)
            return file_of(data).tag
        lock = {KEYS: "the keys", OPERATIONS: "the operation log"}.get(name, f"file {name}")
        # Who changes keys at the same time is told so; who creates them waits, and then finds them.
        with self._database.transaction(lock, wait=name != KEYS or tag is None):
            present = self.get(name)
            if (present.tag if present else None) != tag:
                raise FileChanged(name)
            if name == KEYS:
                self._put_keys(data)
            elif name == OPERATIONS:
                self._put_lines(data, present.data if present else b"")
            else:
                self._database.rows(
                    "INSERT INTO {meta} VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    f"file {name}", data,
                )  # fmt: skip
        return file_of(data).tag

    def _put_keys(self, data: bytes) -> None:
        self._database.rows("DELETE FROM {keys}")
        for name, content in decoded_keys(data).items():
            self._database.rows("INSERT INTO {keys} VALUES (%s, %s)", name, content)

    def _put_lines(self, data: bytes, before: bytes) -> None:
        if data.startswith(before):  # usually one line is added
            data = data[len(before) :]
        else:
            self._database.rows("DELETE FROM {operations}")
        lines = data.split(b"\n")[:-1]
        self._database.rows("INSERT INTO {operations} (line) SELECT unnest(%s::bytea[])", lines)

    def names(self, under: str) -> list[str]:
        """See `FrameLog`."""
        rows = self._database.rows("SELECT name FROM {meta} WHERE starts_with(name, %s)", f"file {under}/")
        return [name.removeprefix(f"file {under}/") for (name,) in rows]

    def stamp(self, name: str) -> object:
        """See `FrameLog`. Of the keys it is what `RowLog` compares before each frame."""
        if name != KEYS:
            return super().stamp(name)
        found = self._database.rows("SELECT md5(data) FROM {keys} WHERE name = %s", KEYSET)
        return found[0][0] if found else None
