"""Leases and spools in PostgreSQL keep the live contract, plain and encrypted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from snapshot_plugin.live.place import place_of
from snapshot_plugin.live.ports import LivePlace
from snapshot_plugin.store.postgres.address import Address
from snapshot_plugin.store.postgres.database import Database
from snapshot_plugin.store.postgres.live_rows import LiveRows
from snapshot_plugin.store.postgres.store import PostgresStore
from snapshot_plugin.testing import LiveContract, make_snapshot

KEY = "asnap-key-" + "A" * 43


def let_lease_end(url: str, session_id: str) -> None:
    """Have the server believe that the time of the session's lease is over."""
    database = Database(Address.parse(url))
    database.rows("UPDATE {live} SET until = clock_timestamp() WHERE sid = %s", session_id)
    database.close()


def let_time_pass(url: str, session_id: str, seconds: float) -> None:
    """Have the server believe that the session's lease was renewed so much earlier."""
    database = Database(Address.parse(url))
    moved = "UPDATE {live} SET until = until - make_interval(secs => %s) WHERE sid = %s RETURNING 1"
    assert database.rows(moved, seconds, session_id)
    database.close()


class TestRowPlace(LiveContract):
    key: ClassVar[str | None] = None

    @pytest.fixture
    def place(self, postgres_url: str) -> str:
        return postgres_url

    def open(self, place: str) -> LivePlace:
        found = place_of(PostgresStore(place, key=self.key, background=False))
        assert found is not None
        return found

    def code(self, place: str) -> str:
        return (
            "from snapshot_plugin.live.place import place_of\n"
            "from snapshot_plugin.store.postgres.store import PostgresStore\n"
            f"live_place = place_of(PostgresStore({place!r}, key={self.key!r}, background=False))\n"
        )

    def outlive(self, place: str, session_id: str) -> None:
        let_lease_end(place, session_id)

    @contextmanager
    def hold_sync(self, place: Any, begun: threading.Event, go_on: threading.Event) -> Iterator[None]:
        flush = LiveRows.flush

        def wait(rows: LiveRows, session_id: str, epoch: int) -> None:
            begun.set()
            assert go_on.wait(60)
            flush(rows, session_id, epoch)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LiveRows, "flush", wait)
            yield

    def delete(self, place: str, session_id: str) -> None:
        other = PostgresStore(place, key=self.key, background=False).sync
        other.save(make_snapshot("something to delete", session_id=session_id))
        other.delete(session_id)

    def undelete(self, place: str) -> None:
        other = PostgresStore(place, key=self.key, background=False).sync
        other.undelete(other.trash()[-1].token)


class TestSealedRowPlace(TestRowPlace):
    key = KEY
    test_truncate_beside_append_and_flush_loses_nothing = None  # type: ignore[assignment] # the plain place shows it
