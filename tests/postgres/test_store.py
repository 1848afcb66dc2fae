"""What is special about a store in PostgreSQL: its address, its schema, its errors, and one query for a list."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from snapshot_plugin import (
    Conflict,
    InvalidInput,
    InvalidSnapshotVersion,
    SnapshotNotFound,
    StoreForbidden,
    StoreNotFound,
    StoreUnavailable,
    open_store,
)
from snapshot_plugin.codec.frame import read_header
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import place_of
from snapshot_plugin.live.recovery import with_upto
from snapshot_plugin.model import new_id
from snapshot_plugin.store.postgres.address import Address
from snapshot_plugin.store.postgres.database import Database, Row
from snapshot_plugin.store.postgres.outcomes import LostConnection
from snapshot_plugin.store.postgres.pool import Pool
from snapshot_plugin.store.postgres.store import PostgresStore
from snapshot_plugin.testing import FixedClock, make_message, make_snapshot


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_url, background=False)
    yield store
    store.close()


def statement(url: str, text: str) -> None:
    """Run a statement as the owner of the database, behind the store's back."""
    database = Database(Address.parse(url))
    with database.transaction():
        database.script(text)
    database.close()


class TestAddress:
    @pytest.mark.parametrize("place", ["u:secret@host/db", "host/db?password=secret"])
    def test_a_password_in_the_url_is_refused_and_not_repeated(self, place: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            open_store(f"postgresql://{place}")
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        "options", ["schema=a;b", 'schema="x', "prefix=-", "lease=0", "lease=x", "connections=0"]
    )
    def test_a_bad_option_is_refused(self, options: str) -> None:
        with pytest.raises(InvalidInput):
            Address.parse(f"postgresql://host/db?{options}")

    def test_unknown_options_go_to_libpq_and_the_user_name_is_hidden(self) -> None:
        address = Address.parse("postgresql://someone@host:6000/db?sslmode=require&schema=mine&prefix=p_&lease=3")
        assert "sslmode=require" in address.conninfo
        assert "schema" not in address.conninfo
        assert (address.schema, address.prefix, address.lease) == ("mine", "p_", 3.0)
        assert "someone" not in address.name

    def test_stores_of_other_schemas_and_prefixes_share_a_database(self, postgres_url: str) -> None:
        with psycopg.connect(postgres_url.partition("&schema")[0]) as connection:
            assert connection.info.server_version >= 150000
        for prefix in ("one_", "two_"):
            place = open_store(f"{postgres_url}&prefix={prefix}").sync
            place.save(make_snapshot(prefix, session_id=prefix))
            assert [meta.session_id for meta in place.list()] == [prefix]


class TestOpening:
    def test_missing_store_is_created_only_on_request(self, postgres_url: str) -> None:
        with pytest.raises(StoreNotFound):
            open_store(postgres_url, create=False).sync.list()
        assert open_store(postgres_url).sync.list() == []
        assert open_store(postgres_url, create=False).sync.list() == []

    def test_tables_of_a_newer_release_are_refused(self, store: PostgresStore, postgres_url: str) -> None:
        store.sync.list()
        statement(postgres_url, "UPDATE {meta} SET value = '99' WHERE name = 'version'")
        with pytest.raises(InvalidSnapshotVersion, match="99"):
            open_store(postgres_url).sync.list()

    def test_the_format_of_a_newer_release_is_refused(self, store: PostgresStore, postgres_url: str) -> None:
        store.sync.list()
        marker = b'{"format": 2, "id": "x", "encrypted": false}'.hex()
        statement(
            postgres_url,
            f"UPDATE {{meta}} SET value = decode('{marker}', 'hex') WHERE name = 'marker'".replace('{"', '{{"'),
        )
        with pytest.raises(InvalidSnapshotVersion):
            open_store(postgres_url).sync.list()


class TestRefusals:
    def test_unreachable_server_is_retryable(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUnavailable) as caught:
            open_store(f"postgresql:///db?host={tmp_path}").sync.list()
        assert caught.value.retryable

    def test_missing_database_is_named(self, postgres_url: str) -> None:
        with pytest.raises(StoreNotFound, match="nosuch"):
            open_store(postgres_url.replace("/postgres?", "/nosuch?")).sync.list()

    def test_missing_privileges_are_reported(self, store: PostgresStore, postgres_url: str) -> None:
        store.sync.save(make_snapshot("a"))
        user = f"reader_{new_id()}"
        statement(postgres_url, f"CREATE ROLE {user} LOGIN")
        theirs = open_store(postgres_url.replace("postgres@", f"{user}@")).sync
        with pytest.raises(StoreForbidden) as caught:
            theirs.save(make_snapshot("a", "b"))
        assert not caught.value.retryable

    def test_read_only_server_can_be_read(self, store: PostgresStore, postgres_url: str) -> None:
        store.sync.save(make_snapshot("a"))
        standby = PostgresStore(f"{postgres_url}&options=-c%20default_transaction_read_only%3Don").sync
        loaded = standby.load("session")
        with pytest.raises(StoreUnavailable, match="read-only") as caught:
            standby.save(loaded.evolve(title="new"))
        assert caught.value.retryable

    def test_full_disk_loses_nothing_and_the_save_can_be_retried(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        store.sync.save(make_snapshot("a"))
        table = store._database.address.table("frames")
        statement(
            postgres_url,
            f'CREATE FUNCTION {table[:-1]}_full"() RETURNS trigger LANGUAGE plpgsql AS'
            " $$ BEGIN RAISE 'No space left on device' USING ERRCODE = '53100'; END $$;"
            f'CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION {table[:-1]}_full"()',
        )
        with pytest.raises(StoreUnavailable, match="No space left") as caught:
            store.sync.save(make_snapshot("a", "b"))
        assert caught.value.retryable
        assert store.sync.load("session") == make_snapshot("a")
        statement(postgres_url, f"DROP TRIGGER full_disk ON {table}")
        assert store.sync.save(make_snapshot("a", "b")).seq == 2

    def test_connections_ended_by_the_server_are_replaced(self, postgres_url: str) -> None:
        name = f"asnap {new_id()}"
        store = PostgresStore(f"{postgres_url}&application_name={quote(name)}", background=False)
        store.sync.save(make_snapshot("a"))
        with psycopg.connect(postgres_url.partition("&schema")[0], autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s", [name]
            )
            assert ended.fetchall() == [(True,)]
        assert store.sync.save(make_snapshot("a", "b")).seq == 2
        store.close()

    def test_connection_lost_during_a_save_leaves_it_whole_or_absent(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server ends the connection before the commit; the same save is then repeated."""
        store.sync.save(make_snapshot("a"))
        append = store.frames.append

        def broken(*args: object, **options: object) -> bool:
            append(*args, **options)  # type: ignore[arg-type]
            store._database.rows("SELECT pg_terminate_backend(pg_backend_pid())")
            raise AssertionError

        monkeypatch.setattr(store.frames, "append", broken)
        with pytest.raises(StoreUnavailable):
            store.sync.save(make_snapshot("a", "b"))
        monkeypatch.undo()
        assert store.sync.save(make_snapshot("a", "b")).seq == 2
        assert store.sync.load("session", strict=True) == make_snapshot("a", "b")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of the test's own thread: leases are renewed in others, also those of other tests."""
    statements: list[str] = []
    this_thread = threading.get_ident()

    def counting(method: Callable[..., list[Row]]) -> Callable[..., list[Row]]:
        def counted(database: Database, text: str, *values: object, **options: Any) -> list[Row]:
            if threading.get_ident() == this_thread:
                statements.append(text)
            return method(database, text, *values, **options)

        return counted

    for name in ("rows", "read", "ahead"):
        monkeypatch.setattr(Database, name, counting(getattr(Database, name)))
    return statements


class TestWarmSave:
    """A save by a store that knows the end of the log: one statement, which compares and appends."""

    def warm(self, store: PostgresStore, **options: Any) -> None:
        for words in ("a", "ab"):
            store.sync.save(make_snapshot(*words), **options)

    def test_warm_save_is_one_statement(self, store: PostgresStore, asked: list[str]) -> None:
        self.warm(store)
        for words in ("abc", "abcd", "abcde"):
            asked.clear()
            store.sync.save(make_snapshot(*words))
            assert len(asked) == 1
        assert store.sync.load("session", strict=True) == make_snapshot(*"abcde")
        assert store.sync.check().ok

    def test_concurrent_save_of_another_node_is_a_conflict(self, store: PostgresStore, postgres_url: str) -> None:
        self.warm(store)
        other = PostgresStore(postgres_url, background=False, segment_frames=1)
        saved = other.sync.load("session").append(make_message("by the other"))
        other.sync.save(saved)  # in a new segment: the one that the first store knows has not changed
        with pytest.raises(Conflict):
            store.sync.save(make_snapshot("a", "b", "c"))
        assert store.sync.load("session") == saved
        other.close()

    @pytest.mark.parametrize("purge", [True, False])
    def test_session_deleted_meanwhile_is_a_conflict(
        self, store: PostgresStore, postgres_url: str, *, purge: bool
    ) -> None:
        self.warm(store)
        other = PostgresStore(postgres_url, background=False)
        other.sync.delete("session", purge=purge)
        with pytest.raises(Conflict):
            store.sync.save(make_snapshot("a", "b", "c"))
        assert not store.sync.list()
        other.close()

    def test_save_succeeds_after_segments_were_packed_meanwhile(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        self.warm(store)
        other = PostgresStore(postgres_url, background=False)
        other.core.compact("session")
        other.close()
        assert store.sync.save(make_snapshot("a", "b", "c")).seq == 3
        assert store.sync.load("session", strict=True) == make_snapshot("a", "b", "c")

    def test_save_with_a_lost_response_can_be_retried(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.warm(store)
        ahead = Database.ahead

        def lost(database: Database, text: str, *values: object) -> object:
            ahead(database, text, *values)
            raise LostConnection("the answer got lost")

        monkeypatch.setattr(Database, "ahead", lost)
        with pytest.raises(StoreUnavailable):
            store.sync.save(make_snapshot("a", "b", "c"))
        monkeypatch.undo()
        store.sync.save(make_snapshot("a", "b", "c"))
        store.sync.save(make_snapshot("a", "b", "c", "d"))
        assert store.sync.load("session", strict=True) == make_snapshot("a", "b", "c", "d")
        assert store.sync.check().ok

    def test_labels_are_those_of_the_newest_snapshot(self, store: PostgresStore) -> None:
        self.warm(store, labels={"n": "1"})
        store.sync.save(make_snapshot("a", "b", "c"), labels={"n": "2"})
        assert not store.sync.list(labels={"n": "1"})
        assert store.sync.list(labels={"n": "2"})
        store.sync.save(make_snapshot("a", "b", "c", "d"))
        assert not store.sync.list(labels={"n": "2"})

    def test_records_in_a_snapshot_are_dropped_in_its_transaction(
        self, store: PostgresStore, asked: list[str]
    ) -> None:
        place = place_of(store)
        assert place is not None
        hold = place.take("session", Owner.this_process(since=FixedClock()()))
        for upto, words in enumerate(("a", "ab", "abc"), 1):
            hold.append([{"n": upto}])
            asked.clear()
            store.sync.save(with_upto(make_snapshot(*words), upto))
            assert store.live_rows.count("session") == 0
        assert len([text for text in asked if "{extend}" in text]) == 1
        asked.clear()
        hold.truncate(3)
        assert not asked
        hold.append([{"n": 4}])
        with pytest.raises(Conflict):
            store.sync.save(with_upto(make_snapshot("x"), 4), base=1)
        assert store.live_rows.count("session") == 1
        hold.release()


class TestQueries:
    def test_a_list_and_the_trash_are_one_query_each(self, store: PostgresStore, asked: list[str]) -> None:
        for number in range(5):
            store.sync.save(make_snapshot("a", session_id=f"s{number}"))
            store.sync.save(make_snapshot("a", session_id=f"t{number}"))
            store.sync.delete(f"t{number}")
        asked.clear()
        assert len(store.sync.list()) == 5
        assert len(asked) == 1
        assert len(store.sync.trash()) == 5
        assert len(asked) == 2

    def test_labels_are_indexed_and_come_from_the_newest_snapshot(
        self, store: PostgresStore, asked: list[str]
    ) -> None:
        odd = {"thread": "\0 \ud800 ü"}
        for number in range(4):
            store.sync.save(make_snapshot("a", session_id=f"s{number}"), labels={"n": f"{number}"})
        store.sync.save(make_snapshot("a", session_id="odd"), labels=odd)
        store.sync.save(make_snapshot("a", "b", session_id="s1"))
        asked.clear()
        assert [meta.session_id for meta in store.sync.list(labels={"n": "2"})] == ["s2"]
        assert [meta.session_id for meta in store.sync.list(labels=odd)] == ["odd"]
        assert store.sync.list(labels={"n": "1"}) == []
        assert all("labels @>" in text for text in asked)
        store.sync.save(make_snapshot("a", "b", session_id="s2"), labels={"n": "2"})
        store.sync.forget("s2", seqs=[1])
        assert [meta.session_id for meta in store.sync.list(labels={"n": "2"})] == ["s2"]

    def test_no_query_relies_on_connection_state(self, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """As behind pgbouncer in transaction mode: each transaction gets a connection without a past."""
        idle = Pool._idle_one

        def without_past(pool: Pool) -> object:
            connection = idle(pool)
            if connection is not None:
                connection.execute("DISCARD ALL")
            return connection

        monkeypatch.setattr(Pool, "_idle_one", without_past)
        store = PostgresStore(postgres_url, key="asnap-key-" + "A" * 43, background=False)
        place = place_of(store)
        assert place is not None
        hold = place.take("session", Owner.this_process(since=FixedClock()()))
        for number in range(1, 12):
            assert hold.append([{"n": number}]) == number
            assert store.sync.save(make_snapshot(*"abcdefghijkl"[:number])).seq == number
        hold.flush()
        hold.truncate(11)
        hold.release()
        assert store.sync.check().ok
        store.close()

    def test_purged_sessions_leave_no_rows(self, store: PostgresStore) -> None:
        store.sync.save(make_snapshot("a", "b"))
        store.sync.delete("session", purge=True)
        for table in ("sessions", "segments", "frames"):
            assert store._database.rows(f"SELECT count(*) FROM {{{table}}}") == [(0,)]
        with pytest.raises(SnapshotNotFound):
            store.sync.load("session")


class TestRotatedKeys:
    """Another process rotates the key while this one writes."""

    @pytest.fixture
    def encrypted(self, postgres_url: str) -> Iterator[PostgresStore]:
        store = PostgresStore(postgres_url, "first", background=False)
        yield store
        store.close()

    @pytest.fixture
    def other(self, encrypted: PostgresStore, postgres_url: str) -> Iterator[PostgresStore]:
        encrypted.prepare()
        store = PostgresStore(postgres_url, "first", background=False)
        yield store
        store.close()

    @pytest.mark.anyio
    @pytest.mark.parametrize("saves", [0, 1, 3], ids=["first save", "second save", "a save in one statement"])
    async def test_next_snapshot_is_sealed_with_the_new_key(
        self, encrypted: PostgresStore, other: PostgresStore, saves: int
    ) -> None:
        said = [make_message(str(n)) for n in range(saves + 1)]
        for n in range(saves):
            await encrypted.save(make_snapshot("x").evolve(messages=said[: n + 1]))
        await other.rotate_key()
        await encrypted.save(make_snapshot("x").evolve(messages=said))
        assert read_header(encrypted.frames.tail("session") or b"")[0].kid == primary(other)
        assert (await other.load("session")).messages == tuple(said)

    @pytest.mark.anyio
    async def test_session_is_rewritten_with_the_new_key(
        self, encrypted: PostgresStore, other: PostgresStore
    ) -> None:
        for n in range(4):
            await encrypted.save(make_snapshot(*map(str, range(n + 1))))
        await other.rotate_key()
        await encrypted.compact("session")
        assert read_header(encrypted.frames.tail("session") or b"")[0].kid == primary(other)

    @pytest.mark.anyio
    async def test_spool_is_sealed_with_the_new_key_after_the_next_snapshot(
        self, encrypted: PostgresStore, other: PostgresStore, postgres_url: str
    ) -> None:
        place = place_of(encrypted)
        assert place
        hold = place.take("session", Owner.this_process(since=FixedClock()()))
        hold.append([{"say": "one"}])
        await other.rotate_key()
        await encrypted.save(with_upto(make_snapshot("one"), hold.last))
        hold.truncate(hold.last)
        hold.append([{"say": "two"}])
        address = Address.parse(postgres_url)
        with psycopg.connect(address.conninfo) as connection:
            bodies = [row[0] for row in connection.execute(f'SELECT body FROM "{address.schema}".spool')]
        assert [primary(other).encode() in body for body in bodies] == [True]
        hold.release()


def primary(store: PostgresStore) -> str:
    """The id of the key that *store* seals with."""
    keys = store.session_keys("session")
    assert keys
    return keys.primary
