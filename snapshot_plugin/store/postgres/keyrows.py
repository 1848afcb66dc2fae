"""`KeyFiles` as rows: the keys of an encrypted store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from snapshot_plugin.store.postgres.database import Database

__all__ = ["KeyRows"]


class KeyRows:
    """The small files of a keychain, one row each. All changes inside `changing` are one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stamps: dict[str, object] = {}

    def names(self) -> list[str] | None:
        """See `KeyFiles`."""
        return [name for (name,) in self._database.rows("SELECT name FROM {keys}")] or None

    def read(self, name: str) -> bytes | None:
        """See `KeyFiles`."""
        found = self._database.rows("SELECT data FROM {keys} WHERE name = %s", name)
        return bytes(found[0][0]) if found else None

    def stamp(self, name: str) -> object:
        """See `KeyFiles`. Asked for once: later changes are noticed by each write itself (`RowLog.keyset`)."""
        if name not in self._stamps:
            found = self._database.rows("SELECT md5(data) FROM {keys} WHERE name = %s", name)
            self._stamps[name] = found[0][0] if found else None
        return self._stamps[name]

    def create(self, files: Mapping[str, bytes]) -> bool:
        """See `KeyFiles`."""
        with self._database.transaction("the keys"):
            if self.names() is not None:
                return False
            for name, data in files.items():
                self.write(name, data)
        return True

    def changing(self) -> AbstractContextManager[None]:
        """See `KeyFiles`."""
        return self._database.transaction("the keys", wait=False)

    def write(self, name: str, data: bytes) -> None:
        """See `KeyFiles`."""
        self._database.rows(
            "INSERT INTO {keys} VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET data = excluded.data", name, data
        )

    def remove(self, name: str) -> None:
        """See `KeyFiles`."""
        self._database.rows("DELETE FROM {keys} WHERE name = %s", name)
