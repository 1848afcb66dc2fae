"""Connections to a server, shared by all stores of this process that name the same server."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from snapshot_plugin.errors import StoreUnavailable
from snapshot_plugin.system import forks

__all__ = ["Pool", "TimedConnection", "shared_pool"]

T = TypeVar("T")

_PATIENCE = 30.0
"""Seconds to wait for a connection while all are in use."""


class TimedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose statements can be given a time limit: the network may never answer."""

    within: float | None = None
    """Seconds that the server has to answer a statement; None: for ever."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """See `psycopg.Connection`. A statement that takes too long raises; the connection is then of no use."""
        return super().wait(gen if self.within is None else _limited(gen, self.within), *args, **options)


def _limited(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """*gen*, which is resumed at least ten times a second, until *seconds* have passed."""
    end = time.monotonic() + seconds
    try:
        state = next(gen)
        while True:
            ready = yield state
            if time.monotonic() > end:
                raise psycopg.OperationalError(f"the server did not answer within {seconds:g} s")
            state = gen.send(ready)
    except StopIteration as ended:
        value: T = ended.value
        return value
    finally:
        gen.close()


class Pool:
    """Up to *size* connections. A connection that failed is closed; the next caller gets a new one."""

    def __init__(self, conninfo: str, size: int) -> None:
        self._conninfo, self._size = conninfo, size
        self._users = 0
        self._begin()

    def _begin(self) -> None:
        self._free = threading.BoundedSemaphore(self._size)
        self._idle: list[TimedConnection] = []
        self._process = os.getpid()

    def opened(self) -> None:
        """One more store uses the pool."""
        self._users += 1

    def closed(self) -> None:
        """A store was closed. After the last one, idle connections are closed."""
        self._users -= 1
        if self._users <= 0:
            self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle and self._process == os.getpid():
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    @contextlib.contextmanager
    def connection(self) -> Iterator[TimedConnection]:
        """A connection in autocommit mode, for one transaction.

        Raises:
            StoreUnavailable: all connections are in use.
            psycopg.Error: the server refuses.
        """
        if self._process != os.getpid():
            _inherited.extend(self._idle)
            self._begin()
        if not self._free.acquire(timeout=_PATIENCE):
            raise StoreUnavailable(
                f"all {self._size} connections to the database are in use",
                hint="try again, or add connections= to the URL",
            )
        try:
            connection = self._idle_one() or self._new()
            try:
                yield connection
            finally:
                if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
                    connection.close()
                else:
                    self._idle.append(connection)
        finally:
            self._free.release()

    def _idle_one(self) -> TimedConnection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            if not _was_hung_up(connection):
                return connection
            connection.close()
        return None

    def _new(self) -> TimedConnection:
        # Statements are not prepared: behind pgbouncer, the next transaction may run on another server connection.
        return TimedConnection.connect(self._conninfo, autocommit=True, prepare_threshold=None)


def _was_hung_up(connection: TimedConnection) -> bool:
    """Whether an idle connection received data: a server that restarts sends a last message."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


_pools: dict[str, Pool] = {}
_guard = forks.lock()
_inherited: list[TimedConnection] = []
"""Connections of a parent process. Kept for ever: closing one would end the parent's session."""


def shared_pool(conninfo: str, size: int) -> Pool:
    """The pool of this process for that server. The first caller decides the size."""
    with _guard:
        pool = _pools.setdefault(conninfo, Pool(conninfo, size))
        pool.opened()
        return pool


@atexit.register
def _close_all() -> None:
    for pool in _pools.values():
        pool.close_idle()
