"""The lines of the operation log as rows: ``asnap undo`` then works from every machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from snapshot_plugin.store.postgres.database import Database

__all__ = ["LineRows"]


class LineRows:
    """Lines in order; see `snapshot_plugin.operations.undo.OperationLines`."""

    def __init__(self, database: Database, prepare: Callable[[], None]) -> None:
        self._database, self._prepare = database, prepare

    def read_lines(self) -> list[bytes]:
        """All lines, oldest first."""
        self._prepare()
        return [bytes(line) for (line,) in self._database.rows("SELECT line FROM {operations} ORDER BY n")]

    def append_line(self, line: bytes) -> int:
        """Add a line; durable on return. Returns how many bytes there are."""
        self._prepare()
        with self._database.transaction("the operation log"):
            self._database.rows("INSERT INTO {operations} (line) VALUES (%s)", line)
            ((size,),) = self._database.rows("SELECT sum(octet_length(line)) FROM {operations}")
        return int(size)

    def change_lines(self, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
        """Put what *change* makes of the lines in their place, in one transaction."""
        self._prepare()
        with self._database.transaction("the operation log"):
            lines = change(self.read_lines())
            self._database.rows("DELETE FROM {operations}")
            self._database.rows("INSERT INTO {operations} (line) SELECT unnest(%s::bytea[])", list(lines))
