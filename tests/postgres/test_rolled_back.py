"""A database that lost its newest transactions: a restored backup, or a standby promoted before it had them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import psycopg
import pytest

from snapshot_plugin.model import new_id
from snapshot_plugin.store.postgres.address import Address
from snapshot_plugin.store.postgres.store import PostgresStore
from tests.acp.proxied import history, words
from tests.acp_client import Client
from tests.postgres.test_lease_runs_out import until
from tests.postgres.test_nodes import node

pytestmark = pytest.mark.requirement("MANAGER-LEASE-ROLLBACK")
TABLES = ("sessions", "segments", "frames", "live", "spool")


class Backup:
    """The rows of a store at one moment, in a schema of their own."""

    def __init__(self, url: str) -> None:
        self._address, self._schema = Address.parse(url), f"backup_{new_id()}"
        self._run(f'CREATE SCHEMA "{self._schema}"')
        for table in TABLES:
            self._run(f'CREATE TABLE "{self._schema}".{table} AS TABLE {self._address.table(table)}')

    def restore(self) -> None:
        """Put the rows back, in one transaction, as a failover does."""
        with self._connected() as connection, connection.transaction():
            for table in TABLES:
                name = self._address.table(table)
                connection.execute(f"LOCK {name} IN ACCESS EXCLUSIVE MODE".encode())
            for table in TABLES:
                name = self._address.table(table)
                connection.execute(f"DELETE FROM {name}".encode())
                copy = f'INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM "{self._schema}".{table}'
                connection.execute(copy.encode())

    def drop(self) -> None:
        self._run(f'DROP SCHEMA "{self._schema}" CASCADE')

    def _run(self, statement: str) -> None:
        with self._connected() as connection:
            connection.execute(statement.encode())

    @contextlib.contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self._address.conninfo, autocommit=True) as connection:
            yield connection


@contextlib.contextmanager
def backup(url: str) -> Iterator[Backup]:
    found = Backup(url)
    try:
        yield found
    finally:
        found.drop()


def saved_session(url: str) -> str:
    with node(url) as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "say first")
    return session_id


def loaded(client: Client, session_id: str) -> None:
    client.initialize()
    history(client, session_id)


def kept(url: str, session_id: str) -> str:
    with node(url) as client:
        client.initialize()
        _, updates = history(client, session_id)
    return "".join(text for who, text in words(updates) if who == "agent")


def test_owner_is_fenced_by_a_node_that_takes_the_session_after_a_rollback(postgres_url: str) -> None:
    """Its take is lost too: counted epochs would give the next owner the same number."""
    session_id = saved_session(postgres_url)
    with backup(postgres_url) as before, node(postgres_url) as first, node(postgres_url) as second:
        loaded(first, session_id)
        assert first.prompt(session_id, "say lost") == "lost"
        before.restore()
        loaded(second, session_id)
        assert second.prompt(session_id, "say second") == "second"
        prompt = first.begin_prompt(session_id, "say zombie")
        assert first.exit_status() == 6
        assert "took session" in json.dumps(first.answer_to(prompt))
        assert "zombie" not in first.said(session_id)
        assert second.prompt(session_id, "say third") == "third"
    assert kept(postgres_url, session_id) == "firstsecondthird"


def test_owner_saves_again_what_a_rollback_lost_if_nobody_took_the_session(postgres_url: str) -> None:
    session_id = saved_session(postgres_url)
    with backup(postgres_url) as before, node(postgres_url) as client:
        loaded(client, session_id)
        client.prompt(session_id, "say two")
        client.prompt(session_id, "say three")
        before.restore()
        assert client.prompt(session_id, "say four") == "four"
        client.wait_for_stderr("rolled back")
    assert kept(postgres_url, session_id) == "firsttwothreefour"


def test_idle_owner_saves_again_what_a_rollback_lost_when_it_ends(postgres_url: str) -> None:
    session_id = saved_session(postgres_url)
    with backup(postgres_url) as before, node(f"{postgres_url}&lease=600") as client:
        loaded(client, session_id)
        client.prompt(session_id, "say two")
        before.restore()
    assert kept(postgres_url, session_id) == "firsttwo"


def test_idle_owner_saves_again_when_it_renews_its_lease(postgres_url: str) -> None:
    session_id = saved_session(postgres_url)
    store = PostgresStore(postgres_url, background=False)
    with backup(postgres_url) as before, node(f"{postgres_url}&lease=1.5") as client:
        loaded(client, session_id)
        client.prompt(session_id, "say two")
        before.restore()
        client.wait_for_stderr("rolled back")
        until(lambda: "two" in str(store.sync.load(session_id)))
    store.close()


def test_rollback_behind_the_first_snapshot_loses_nothing(postgres_url: str) -> None:
    PostgresStore(postgres_url, background=False).sync.list()  # makes the tables
    with backup(postgres_url) as before, node(postgres_url) as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "say one")
        before.restore()
        assert client.prompt(session_id, "say two") == "two"
    assert kept(postgres_url, session_id) == "onetwo"
