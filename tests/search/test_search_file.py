from __future__ import annotations

import os
import random
import sqlite3
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, MemoryStore, RetentionPolicy, SnapshotMeta, StoreUnavailable
from snapshot_plugin.search.database import IndexDatabase
from snapshot_plugin.search.index import opened_index
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.testing import make_message, make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.search.searching import Reads, found, index_file, places, stored

pytestmark = pytest.mark.anyio


# The list ----------------------------------------------------------------------------------------------------


class Listing(FilesystemStore):
    """Counts how often it had to make its list."""

    lists = 0

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        self.lists += 1
        return await super().list()


async def remembered(store: SnapshotStore, cache: Path) -> Sequence[SnapshotMeta]:
    async with opened_index(store, cache, name="s") as index:
        return await index.listed()


async def _save_more(store: FilesystemStore) -> None:
    await store.save(make_snapshot("one", "two", session_id="a"))


async def _save_another(store: FilesystemStore) -> None:
    await store.save(make_snapshot("x", session_id="c"))


async def _delete(store: FilesystemStore) -> None:
    await store.delete("a")


async def _forget(store: FilesystemStore) -> None:
    await store.forget("b", RetentionPolicy(keep_last=1))


async def _damage(store: FilesystemStore) -> None:
    (file,) = store.session_dir("a").glob("*.snap.gz")
    file.write_bytes(b"x" * file.stat().st_size)


async def _stray(store: FilesystemStore) -> None:
    (store.path / "sessions" / "UPPER").mkdir()


CHANGES = (_save_more, _save_another, _delete, _forget, _damage, _stray)


@pytest.mark.parametrize("change", CHANGES)
async def test_cached_list_always_equals_the_stores_own(
    tmp_path: Path, change: Callable[[FilesystemStore], Awaitable[None]]
) -> None:
    with anyio.fail_after(60):
        async with Listing(tmp_path / "store", background=False) as store:
            await store.save(make_snapshot("one", session_id="a", tags=("t",)))
            for texts in (("x",), ("x", "y")):
                await store.save(make_snapshot(*texts, session_id="b"))
            first = await remembered(store, tmp_path / "cache")
            again = await remembered(store, tmp_path / "cache")
            assert (again, store.lists) == (first, 1)
            await change(store)
            assert await remembered(store, tmp_path / "cache") == list(await store.list())


@pytest.mark.requirement("ORBIT-STORE-INDEX")
async def test_listing_reads_no_conversations(tmp_path: Path) -> None:
    long = make_snapshot(*(random.Random(n).randbytes(4000).hex() for n in range(20)), session_id="a", title="Long")
    async with stored(tmp_path, long, long.append(make_message("the end"))) as store:
        (file,) = store.session_dir("a").glob("*.snap.gz")
        size = file.stat().st_size
        with file.open("r+b") as frames:  # the conversation is gone; what lists need is in the newest frame
            frames.write(bytes(size * 9 // 10))
        for _ in range(2):
            (meta,) = await remembered(store, tmp_path / "cache")
            assert (meta.state, meta.title, meta.messages, meta.seq) == ("ok", "Long", 21, 2)


async def test_unreadable_cached_list_is_rebuilt(tmp_path: Path) -> None:
    async with stored(tmp_path, make_snapshot("one", session_id="a")) as store:
        cache = tmp_path / "cache"
        await remembered(store, cache)
        with sqlite3.connect(index_file(cache)) as connection:
            connection.execute("UPDATE listing SET metas = 'nonsense'")
        connection.close()
        assert [meta.session_id for meta in await remembered(store, cache)] == ["a"]


async def test_store_without_a_directory_is_always_asked(tmp_path: Path) -> None:
    async with MemoryStore() as store:
        for name in ("a", "b"):
            await store.save(make_snapshot("x", session_id=name))
            assert await remembered(store, tmp_path) == list(await store.list())


# The file ----------------------------------------------------------------------------------------------------


def _as_text(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _garbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


def _of_another_store(path: Path) -> None:
    path.unlink()
    IndexDatabase(path, store_id="other").close()


def _of_another_version(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def _without_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE message")
    connection.close()


def _of_somebody_else(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name)")
    connection.close()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE: Sequence[Callable[[Path], None]] = (
    _as_text, _cut, _garbled, _of_another_store, _of_another_version, _without_tables, _of_somebody_else, _empty,
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damaged_or_foreign_index_is_rebuilt_silently(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    sessions = [make_snapshot(*(f"ape number {n}" for n in range(60)), session_id=name) for name in ("a", "b")]
    async with stored(tmp_path, *sessions) as store:
        cache = tmp_path / "cache"
        before = await places(store, cache, "ape")
        damage(index_file(cache))
        reads = Reads()
        result, unreadable = await found(store, cache, "ape", reads)

        assert [(hit.session_id, hit.number) for hit in result.hits] == before
        assert unreadable == ()
        assert len(reads.names) >= 2
        again = Reads()
        await found(store, cache, "ape", again)
        assert again.names == []  # it is whole again


async def test_rebuild_reads_everything_again(tmp_path: Path) -> None:
    async with stored(tmp_path, make_snapshot("ape", session_id="a")) as store:
        await places(store, tmp_path / "cache", "ape")
        reads = Reads()
        await found(store, tmp_path / "cache", "ape", reads, rebuild=True)
        assert len(reads.names) == 1


async def test_index_is_private_to_its_owner(tmp_path: Path) -> None:
    async with stored(tmp_path, make_snapshot("ape", session_id="a")) as store:
        cache = tmp_path / "cache"
        await places(store, cache, "ape")
        assert stat.S_IMODE(cache.stat().st_mode) == 0o700
        index_file(cache).chmod(0o644)
        await places(store, cache, "ape")
        assert stat.S_IMODE(index_file(cache).stat().st_mode) == 0o600


async def test_unusable_cache_costs_time_but_no_answers(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no directory")
    async with stored(tmp_path, make_snapshot("ape", session_id="a")) as store:
        assert await places(store, tmp_path / "cache", "ape") == [("a", 1)]


async def test_index_locked_by_another_process_is_replaced_by_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapshot_plugin.search.database._PATIENCE", 0.01)
    async with stored(tmp_path, make_snapshot("ape", session_id="a")) as store:
        cache = tmp_path / "cache"
        await places(store, cache, "ape")
        await store.save(make_snapshot("ape", session_id="b"))
        before = index_file(cache).stat().st_ino
        other = sqlite3.connect(index_file(cache), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            assert len(await places(store, cache, "ape")) == 2
        finally:
            other.close()
        assert index_file(cache).stat().st_ino == before  # what another process is writing is left to it
        assert len(await places(store, cache, "ape")) == 2


async def test_sqlite_errors_become_store_unavailable(tmp_path: Path) -> None:
    def broken(_connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("no such module: fts5")

    async with (
        stored(tmp_path, make_snapshot("ape", session_id="a")) as store,
        opened_index(store, tmp_path / "cache", name="s") as index,
    ):
        with pytest.raises(StoreUnavailable):
            await index.ask(broken, await store.list())


# Encrypted stores --------------------------------------------------------------------------------------------


async def test_index_of_an_encrypted_store_is_sealed_and_reused(tmp_path: Path) -> None:
    async with stored(tmp_path, make_snapshot("the walrus", session_id="a"), key="k") as store:
        cache = tmp_path / "cache"
        assert await places(store, cache, "walrus") == [("a", 1)]
        reads = Reads()
        result, _ = await found(store, cache, "walrus", reads)

        assert (reads.names, len(result.hits)) == ([], 1)
        assert [file.suffix for file in cache.iterdir()] == [".sealed"]
        assert stat.S_IMODE(index_file(cache).stat().st_mode) == 0o600
        data = index_file(cache).read_bytes()
        assert not [word for word in (b"walrus", b"SQLite", b"session") if word in data]


@pytest.mark.parametrize("damage", [_as_text, _cut, _garbled, _empty])
async def test_modified_sealed_index_is_rebuilt(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    async with stored(tmp_path, make_snapshot("walrus", session_id="a"), key="k") as store:
        cache = tmp_path / "cache"
        await places(store, cache, "walrus")
        damage(index_file(cache))
        assert await places(store, cache, "walrus") == [("a", 1)]


async def test_index_sealed_under_an_older_key_opens_and_is_resealed(tmp_path: Path) -> None:
    async with stored(tmp_path, make_snapshot("walrus", session_id="a"), key="k") as store:
        cache = tmp_path / "cache"
        await places(store, cache, "walrus")
        before = index_file(cache).read_bytes()
        await store.rotate_key()
        await store.save(make_snapshot("walrus", session_id="b"))
        assert len(await places(store, cache, "walrus")) == 2
        assert index_file(cache).read_bytes()[:20] != before[:20]


async def test_one_process_at_a_time_brings_the_index_up_to_date(tmp_path: Path) -> None:
    async with (
        stored(tmp_path, make_snapshot("ape", session_id="s")) as store,
        opened_index(store, tmp_path / "cache", name="s") as first,
        opened_index(store, tmp_path / "cache", name="s") as second,
    ):
        with first.alone() as mine, second.alone() as other:
            assert (mine, other) == (True, False)
        with second.alone() as mine:
            assert mine
