"""Statements and transactions of one store. Every database error becomes an error of this package."""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import ClientCursor
from psycopg import errors as refusals
from psycopg.adapt import Dumper

from snapshot_plugin.errors import (
    SessionLocked,
    SnapshotError,
    StoreForbidden,
    StoreNotFound,
    StoreUnavailable,
)
from snapshot_plugin.store.postgres.address import Address
from snapshot_plugin.store.postgres.outcomes import LostConnection
from snapshot_plugin.store.postgres.pool import TimedConnection as Connection
from snapshot_plugin.store.postgres.pool import shared_pool

__all__ = ["IDLE_SECONDS", "Database", "Row"]

Row = tuple[Any, ...]
_LOCK_SECONDS = 30
IDLE_SECONDS = 60.0
"""How long a transaction may wait for its process, which may have much to compress."""
_LONGEST = 300
_NAMES = ("meta", "sessions", "segments", "frames", "quarantine", "keys", "operations", "live", "spool", "extend")


class _BytesDumper(Dumper):
    """Bytes within the text of a statement. The driver's own way takes twice the time for large frames."""

    oid = psycopg.postgres.types["bytea"].oid

    def dump(self, obj: bytes) -> bytes:
        """As an element of an array."""
        return b"\\x" + obj.hex().encode()

    def quote(self, obj: bytes) -> bytes:
        """As a value."""
        return b"decode('" + binascii.b2a_base64(obj, newline=False) + b"','base64')"


class Database:
    """Runs statements. Inside `transaction`, all statements of the thread belong to that transaction.

    Statements name tables as ``{frames}``; see `Address.table`.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._pool = shared_pool(address.conninfo, address.connections)
        self._tables = {name: address.table(name) for name in _NAMES}
        self._statements: dict[str, bytes] = {}
        self._thread = threading.local()
        self._is_closed = False

    def sql(self, statement: str) -> bytes:
        """*statement* with the names of this store's tables."""
        known = self._statements.get(statement)
        if known is None:
            known = self._statements[statement] = statement.format(**self._tables).encode()
        return known

    def rows(self, statement: str, *values: Any, within: float | None = None) -> list[Row]:
        """What a statement returns; it is a transaction of its own unless the thread is in one.

        Raises:
            LostConnection: outside a transaction, the server did not answer *within* that many seconds.
        """
        pinned = self._pinned
        if pinned is not None:
            return self._asked(pinned, statement, values)
        with self._connection() as connection:
            connection.within = within
            try:
                return self._asked(connection, statement, values)
            finally:
                connection.within = None

    def read(self, statement: str, *values: Any) -> list[Row]:
        """What a query returns that locks nothing; like `rows`, and faster if that is much data."""
        pinned = self._pinned
        if pinned is not None:
            return self._asked(pinned, statement, values)
        with self._connection() as connection, self.translated():
            return connection.cursor(binary=True).execute(self.sql(statement), values).fetchall()

    def later(self, statement: str, *values: Any) -> None:
        """Run a statement that returns nothing, inside `transaction`, together with the next one or the commit."""
        self._thread.waiting = [*self._thread.waiting, (self.sql(statement), values)]

    def _asked(self, connection: Connection, statement: str, values: Sequence[Any]) -> list[Row]:
        with self.translated():
            cursor = self._send(connection, self.sql(statement), values)
            return cursor.fetchall() if cursor.description else []

    @property
    def is_untouched(self) -> bool:
        """Whether the thread is inside `transaction` and has sent nothing yet: no lock is held."""
        return self._pinned is not None and self._thread.waiting is self._thread.beginning

    def ahead(self, statement: str, *values: Any) -> list[Row]:
        """Run a statement as a transaction of its own before the one around it begins: one round trip.

        Only where `is_untouched`. If nothing else follows, the transaction around it is never begun.
        """
        connection = self._pinned
        if connection is None or not self.is_untouched:
            raise RuntimeError("a transaction has begun already")
        self._thread.waiting = []
        try:
            return self._asked(connection, statement, values)
        finally:
            self._thread.waiting = self._thread.beginning

    def _send(self, connection: Connection, statement: bytes, values: Sequence[Any] = ()) -> ClientCursor[Row]:
        """Send what waits, and *statement*, in one message; the cursor has the result of *statement*.

        The driver puts the values into the text. With values sent apart, a statement is five messages. If the
        network or this process freezes between two of them, the server waits without any timeout, and keeps the
        locks: even those of a statement that is a transaction of its own.
        """
        waiting: list[tuple[bytes, Sequence[Any]]] = []
        if connection is self._pinned:
            waiting, self._thread.waiting = self._thread.waiting, []
        parts = [*waiting, (statement, values)]
        # A statement without values may contain percent signs.
        text = b";".join(part if given else part.replace(b"%", b"%%") for part, given in parts)
        cursor = ClientCursor(connection)
        cursor.adapters.register_dumper(bytes, _BytesDumper)
        cursor.execute(text, [value for _, given in parts for value in given])
        while cursor.nextset():
            pass
        return cursor

    def script(self, statements: str) -> None:
        """Run several statements without values, inside `transaction`. They return nothing."""
        pinned = self._pinned
        if pinned is None:
            raise RuntimeError("a script runs inside a transaction")
        with self.translated():
            self._send(pinned, self.sql(statements))

    @contextlib.contextmanager
    def transaction(
        self, lock: str | None = None, *, wait: bool = True, idle: float = IDLE_SECONDS
    ) -> Iterator[None]:
        """Run what the thread does inside as one transaction: committed at the end, rolled back on an error.

        *lock* names what other transactions with the same name are kept from meanwhile. Nested calls join the
        outer transaction. The server ends a transaction that receives no statement for *idle* seconds.

        Raises:
            SessionLocked: another transaction keeps the lock; without *wait*, at once.
        """
        if self._pinned is not None:
            yield
            return
        with self._connection() as connection:
            self._thread.connection = connection
            self._thread.beginning = [(text, ()) for text in self._begin(lock, wait=wait, idle=idle)]
            self._thread.waiting = self._thread.beginning
            try:
                if lock and not wait:
                    self._try(lock)
                yield
                if not self.is_untouched:
                    with self.translated():
                        self._send(connection, b"COMMIT")
            except BaseException:
                with contextlib.suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._thread.connection, self._thread.waiting = None, []

    def _begin(self, lock: str | None, *, wait: bool, idle: float) -> list[bytes]:
        """How a transaction begins; sent with its first statement. Only numbers are put into the text."""
        settings = (
            f"SELECT set_config('lock_timeout', '{_LOCK_SECONDS}s', true),"
            f" set_config('idle_in_transaction_session_timeout', '{int(idle * 1000)}', true)"
        )
        if lock and wait:
            settings += f", pg_advisory_xact_lock({self.number(lock)})"
        return [b"BEGIN", settings.encode()]

    def _try(self, lock: str) -> None:
        ((is_ours,),) = self.rows(f"SELECT pg_try_advisory_xact_lock({self.number(lock)})")
        if not is_ours:
            raise SessionLocked(f"another process is changing {lock}", hint="try again in a moment")

    def number(self, lock: str) -> int:
        """A lock's number: different for each store of a database."""
        name = f"{self.address.schema}.{self.address.prefix} {lock}"
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)

    @property
    def _pinned(self) -> Connection | None:
        connection: Connection | None = getattr(self._thread, "connection", None)
        return connection

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        with self.translated(connecting=True), self._pool.connection() as connection:
            yield connection

    def close(self) -> None:
        """Give the connections up."""
        if not self._is_closed:
            self._is_closed = True
            self._pool.closed()

    @contextlib.contextmanager
    def translated(self, *, connecting: bool = False) -> Iterator[None]:
        """Raise the error of this package that a database error means."""
        try:
            yield
        except psycopg.Error as error:
            raise self._meaning(error, connecting=connecting) from error

    def _meaning(self, error: psycopg.Error, *, connecting: bool) -> SnapshotError:
        why = _reason(error)
        code = error.sqlstate or _code_in(why)
        for prefix, (kind, hint) in _MEANINGS.items():
            if code.startswith(prefix):
                return kind(f"{self.address.name}: {why}", hint=hint)
        is_broken = isinstance(error, refusals.OperationalError | refusals.InterfaceError) and not code
        if is_broken and not connecting:
            return LostConnection(f"{self.address.name}: {why}")
        return StoreUnavailable(f"{self.address.name}: {why}", hint="check that the server runs, then try again")


_MEANINGS: dict[str, tuple[type[SnapshotError], str]] = {
    "55P03": (SessionLocked, "another transaction keeps the session locked; try again"),
    "40P01": (SessionLocked, "another transaction keeps the session locked; try again"),
    "3D000": (StoreNotFound, "create the database, or check its name"),
    "42P01": (StoreNotFound, "its tables are gone; check schema= and prefix= in the URL"),
    "3F000": (StoreNotFound, "its schema is gone; check schema= in the URL"),
    "28": (StoreForbidden, "check the user and PGPASSWORD"),
    "42501": (StoreForbidden, "let the user create the schema, or read and write its tables"),
    "25006": (StoreUnavailable, "the server is read-only; use the primary: target_session_attrs=read-write"),
    "53": (StoreUnavailable, "free space or connections on the server, then try again"),
}
"""Error codes of PostgreSQL, or how they begin, and what they mean here."""


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST]


def _code_in(text: str) -> str:
    """The error code of a refused connection, which libpq only tells as text."""
    if "does not exist" in text and "database" in text:
        return "3D000"
    if "authentication failed" in text or "no password supplied" in text or "pg_hba.conf" in text:
        return "28000"
    return "28000" if "role" in text and "does not exist" in text else ""
