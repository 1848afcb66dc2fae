"""The tables of a store are made and migrated once; the stores of a process share connections."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from snapshot_plugin.model import new_id
from snapshot_plugin.store.postgres.address import Address
from snapshot_plugin.store.postgres.database import Database
from snapshot_plugin.store.postgres.pool import TimedConnection
from snapshot_plugin.store.postgres.schema import MIGRATIONS
from snapshot_plugin.store.postgres.store import PostgresStore
from snapshot_plugin.testing import make_snapshot

NODES = 6


def saved_at_once(url: str) -> set[str]:
    """Open the store and save from several threads at once; the ids that the store tells them."""

    def save(number: int) -> str:
        store = PostgresStore(url, background=False)
        try:
            store.sync.save(make_snapshot("a", session_id=f"{new_id()}-{number}"))
            return store.store_id
        finally:
            store.close()

    with ThreadPoolExecutor(NODES) as threads:
        return set(threads.map(save, range(NODES)))


def test_nodes_that_come_at_once_make_one_store(postgres_url: str) -> None:
    assert len(saved_at_once(postgres_url)) == 1
    assert len(PostgresStore(postgres_url, background=False).sync.list()) == NODES


def test_tables_of_an_older_release_are_migrated_once_and_keep_their_sessions(postgres_url: str) -> None:
    PostgresStore(postgres_url, background=False).sync.save(make_snapshot("a", session_id="old"))
    database = Database(Address.parse(postgres_url))
    with database.transaction("schema"):
        database.rows("ALTER TABLE {live} DROP COLUMN asked, DROP COLUMN answer, DROP COLUMN asked_until")
        database.rows("DROP FUNCTION {extend}")
        database.rows("UPDATE {meta} SET value = '1' WHERE name = 'version'")

    saved_at_once(postgres_url)

    assert database.rows("SELECT value FROM {meta} WHERE name = 'version'") == [(b"%d" % len(MIGRATIONS),)]
    assert PostgresStore(postgres_url, background=False).sync.load("old") == make_snapshot("a", session_id="old")
    database.close()


def test_stores_of_a_process_share_connections(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, made = TimedConnection.connect, []

    def counted(*args: Any, **options: Any) -> Any:
        made.append(args)
        return connect(*args, **options)

    monkeypatch.setattr(TimedConnection, "connect", counted)
    url = f"{postgres_url}&application_name={new_id()}"  # which no other store has connected to
    stores = [PostgresStore(url, background=False) for _ in range(NODES)]
    for store in stores:
        assert store.sync.list() == []
    for store in stores:
        store.close()
    assert len(made) == 1
