"""`PostgresStore`: snapshots in a PostgreSQL database, for any number of machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from snapshot_plugin.codec.keys import Keyset
from snapshot_plugin.codec.sources import KeySource
from snapshot_plugin.errors import StoreNotFound
from snapshot_plugin.extras import needs_extra
from snapshot_plugin.inert import several
from snapshot_plugin.store.base import Capabilities
from snapshot_plugin.store.engine import StoreLimits
from snapshot_plugin.store.keyed import KeyedStore
from snapshot_plugin.store.postgres.address import Address

with needs_extra("postgres", "stores in PostgreSQL need the library psycopg"):
    from snapshot_plugin.store.postgres.database import Database
    from snapshot_plugin.store.postgres.frames import SEGMENT_BYTES, SEGMENT_FRAMES, RowLog
    from snapshot_plugin.store.postgres.live_rows import LiveRows

__all__ = ["PostgresStore", "open_url"]

_CLOCKS_APART = 5.0


class PostgresStore(KeyedStore):
    """Snapshots, leases and spools in one schema of a database. The tables are created when they are first needed.

    Args:
        url: ``postgresql://user@host:port/database?schema=asnap&prefix=&lease=10``; see `Address.parse`.
        key, create, background, limits, clock: as in `FilesystemStore`.
    """

    capabilities = Capabilities(live=True, several_machines=True)

    def __init__(
        self,
        url: str,
        key: str | KeySource | None = None,
        *,
        create: bool = True,
        background: bool = True,
        limits: StoreLimits | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        segment_bytes: int = SEGMENT_BYTES,
        segment_frames: int = SEGMENT_FRAMES,
    ) -> None:
        address = Address.parse(url)
        self._database = Database(address)
        self.live_rows = LiveRows(self._database, self.prepare)
        """Leases and spools, for `snapshot_plugin.live`."""
        self._row_log = RowLog(
            self._database,
            self.live_rows,
            segment_bytes=segment_bytes,
            segment_frames=segment_frames,
        )
        super().__init__(
            self._row_log,
            name=address.name,
            key=key,
            create=create,
            background=background,
            limits=limits,
            clock=clock,
        )

    def examine(self) -> list[tuple[str, str]]:
        """The findings of ``asnap doctor`` about this place: a level and a text each."""
        began = time.monotonic()
        ((version, is_standby, commits, names, standbys, now),) = self._database.rows(
            "SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('synchronous_commit'),"
            " current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication),"
            " clock_timestamp()"
        )
        took = (time.monotonic() - began) * 1000
        found = [("ok", f"{self._name}: PostgreSQL {version} answers in {took:.0f} ms")]
        if is_standby:
            found.append(("warning", "it is a standby: sessions can be read, not saved"))
        if commits in {"off", "local"}:
            found.append(("warning", f"synchronous_commit is {commits}: saved sessions may not survive the server"))
        elif not is_standby:
            found.append(_replication(names.strip(), standbys))
        apart = abs((self.clock() - now).total_seconds())
        if apart > _CLOCKS_APART:
            found.append(("hint", f"this clock and the server's are {apart:.0f} s apart; leases use the server's"))
        return found

    def missing(self) -> StoreNotFound:
        """See `KeyedStore`."""
        return StoreNotFound.empty(self._name, check="schema= and prefix= if you expected one")

    def _has_data(self) -> bool:
        return False  # a store without a marker has no tables

    def _unlock(self, marker: dict[str, Any]) -> Keyset | None:
        keyset = super()._unlock(marker)
        self._row_log.keyset = self._stamp
        return keyset

    def reload_keys(self) -> bool:
        """See `LogStore`."""
        is_encrypted = super().reload_keys()
        self._row_log.keyset = self._stamp
        return is_encrypted


def _replication(names: str, standbys: int) -> tuple[str, str]:
    """What a failover to a standby would lose."""
    if names:
        return (
            "ok",
            f"synchronous_standby_names is {names}: a failover to one of them loses nothing saved",
        )
    if standbys:
        return "warning", (
            f"synchronous_standby_names is empty, and {several(standbys, 'standby')} may lag behind: a "
            "failover can lose saved sessions and who owns them; set it to 'ANY 1 (*)'"
        )
    return "hint", "no standby is connected; before you promote one, name it in synchronous_standby_names"


def open_url(
    url: str, *, key: str | KeySource | None = None, create: bool = True, background: bool = True
) -> PostgresStore:
    """``postgresql://host/database?schema=asnap`` — a store in a PostgreSQL database.

    The password comes from ``PGPASSWORD``, ``~/.pgpass`` or a service file, as for every client of libpq.
    """
    return PostgresStore(url, key, create=create, background=background)
