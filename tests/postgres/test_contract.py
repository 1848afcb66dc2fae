"""A store in PostgreSQL keeps the store contract: encrypted, and on a given server (as in CI) also plain."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime

import pytest

from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.sources import Passphrase
from snapshot_plugin.model.ids import short_id
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.postgres.address import Address
from snapshot_plugin.store.postgres.database import Database
from snapshot_plugin.store.postgres.store import PostgresStore
from snapshot_plugin.testing import StoreContract

Clock = Callable[[], datetime]


class InPostgres(StoreContract):
    test_a_hundred_thousand_messages_are_kept = None  # type: ignore[assignment] # the engine's affair; slow here

    @pytest.fixture
    def place(self, postgres_url: str) -> str:
        return postgres_url

    def damage_newest(self, place: str, session_id: str) -> None:
        database = Database(Address.parse(place))
        newest = database.rows(
            "SELECT f.segment, f.n, f.data FROM {sessions} s JOIN {segments} USING (place) JOIN {frames} f"
            " USING (segment) WHERE s.sid = %s AND s.token = '' ORDER BY first DESC, segment DESC, n DESC LIMIT 1",
            short_id(session_id),
        )
        ((segment, n, data),) = newest
        spoilt = data[:-10] + bytes([data[-10] ^ 0x40]) + data[-9:]
        database.rows("UPDATE {frames} SET data = %s WHERE segment = %s AND n = %s", spoilt, segment, n)
        database.close()


class TestEncryptedPostgresStoreOfSmallSegments(InPostgres):
    """Small segments keep the background busy with compressing finished ones."""

    key = Passphrase(generate_key())
    test_a_stale_writer_is_refused_though_it_saved_many_other_sessions_since = None  # type: ignore[assignment] # as above

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "trio"

    def open(self, place: str, clock: Clock) -> SnapshotStore:
        return PostgresStore(place, key=self.key, clock=clock, segment_frames=3)


if os.environ.get("ASNAP_TEST_POSTGRES"):

    class TestPostgresStore(InPostgres):
        """On asyncio; the encrypted store on trio. Both loops call the same plain functions in worker threads."""

        @pytest.fixture
        def anyio_backend(self) -> str:
            return "asyncio"

        def open(self, place: str, clock: Clock) -> SnapshotStore:
            return PostgresStore(place, clock=clock)
