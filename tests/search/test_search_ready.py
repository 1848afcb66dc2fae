"""Asking the index without opening the store: only while nothing changed, and nothing that changed is missed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio.to_thread
import pytest

from snapshot_plugin import FilesystemStore, RetentionPolicy, SnapshotMeta
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.search.find import SearchQuery, SearchResult
from snapshot_plugin.search.index import opened_index
from snapshot_plugin.search.query import expression
from snapshot_plugin.search.ready import answered
from snapshot_plugin.store.look import look
from snapshot_plugin.testing import make_message, make_snapshot
from tests.search.searching import index_file, stored

pytestmark = pytest.mark.anyio

SESSIONS = (
    make_snapshot("ape", "bear", session_id="a", title="A", tags=("t",)),
    make_snapshot("ape", session_id="b"),
    make_snapshot("cat", session_id="c"),
)


def ape(sessions: Sequence[SnapshotMeta]) -> tuple[SearchQuery, Sequence[SnapshotMeta]]:
    names = [session.session_id for session in sessions]
    return SearchQuery(expression=expression("ape"), sessions=names, limit=9, each=9), sessions


async def indexed(store: FilesystemStore, cache: Path, *, only: set[str] | None = None) -> None:
    async with opened_index(store, cache, name=store.store_id) as index:
        await index.ask(lambda _connection: None, await index.listed(), only=only)


def ready(store: FilesystemStore, cache: Path) -> tuple[SearchResult, Sequence[SnapshotMeta]] | None:
    return answered(str(store.path), cache, ape)


async def test_current_index_answers_alone_and_agrees_with_the_store(tmp_path: Path) -> None:
    async with stored(tmp_path, *SESSIONS) as store:
        cache = tmp_path / "cache"
        await indexed(store, cache)
        answer = ready(store, cache)
        assert answer is not None
        found, sessions = answer
        assert [(hit.session_id, hit.number) for hit in found.hits] == [("b", 1), ("a", 1)]
        assert list(sessions) == list(await store.list())


async def test_missing_index_is_not_created(tmp_path: Path) -> None:
    async with stored(tmp_path, *SESSIONS) as store:
        assert ready(store, tmp_path / "cache") is None
        assert not (tmp_path / "cache").exists()


# What changed is noticed -------------------------------------------------------------------------------------


async def _append(store: FilesystemStore) -> None:
    await store.save(SESSIONS[1].append(make_message("more")))


async def _save_another(store: FilesystemStore) -> None:
    await store.save(make_snapshot("x", session_id="d"))


async def _delete(store: FilesystemStore) -> None:
    await store.delete("a")


async def _delete_and_bring_back(store: FilesystemStore) -> None:
    await store.save(SESSIONS[0].append(make_message("more")))
    trashed = await store.delete("a")
    await store.undelete(trashed.token)


async def _forget(store: FilesystemStore) -> None:
    await store.save(SESSIONS[1].append(make_message("more")))
    await store.forget("b", RetentionPolicy(keep_last=1))


async def _compact(store: FilesystemStore) -> None:
    await store.save(SESSIONS[1].append(make_message("more")))
    await store.compact("b")


async def _cut(store: FilesystemStore) -> None:
    (file,) = store.session_dir("a").glob("*.snap.gz")
    os.truncate(file, file.stat().st_size - 1)


async def _replace(store: FilesystemStore) -> None:
    (file,) = store.session_dir("a").glob("*.snap.gz")
    other = file.with_name("other")
    other.write_bytes(b"x" * file.stat().st_size)
    other.rename(file)


async def _rename(store: FilesystemStore) -> None:
    (file,) = store.session_dir("a").glob("*.snap.gz")
    file.rename(file.with_name("0000000009.snap.gz"))


CHANGES = (_append, _save_another, _delete, _delete_and_bring_back, _forget, _compact, _cut, _replace, _rename)


@pytest.mark.parametrize("change", CHANGES)
async def test_changed_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[FilesystemStore], Awaitable[None]]
) -> None:
    stop_the_clock(monkeypatch)  # as if all of it happened within one tick
    async with stored(tmp_path, *SESSIONS) as store:
        await indexed(store, tmp_path / "cache")
        assert ready(store, tmp_path / "cache") is not None
        await change(store)
        assert ready(store, tmp_path / "cache") is None


async def test_file_changed_in_place_is_detected_by_its_time(tmp_path: Path) -> None:
    async with stored(tmp_path, *SESSIONS) as store:
        await indexed(store, tmp_path / "cache")
        (file,) = store.session_dir("a").glob("*.snap.gz")
        before = look(store.path)
        while look(store.path) == before:  # until the file system's clock has gone on
            file.write_bytes(b"x" * file.stat().st_size)
        assert ready(store, tmp_path / "cache") is None


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    class Entry:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self.path, self.is_dir = entry.name, entry.path, entry.is_dir
            self._entry = entry

        def stat(self, *, follow_symlinks: bool) -> Any:
            about = self._entry.stat(follow_symlinks=follow_symlinks)
            return SimpleNamespace(st_size=about.st_size, st_ctime_ns=0, st_mtime_ns=0, st_ino=about.st_ino)

    @contextmanager
    def scandir(path: str) -> Iterator[Iterator[Entry]]:
        with real(path) as entries:
            yield (Entry(entry) for entry in entries)

    stopped = SimpleNamespace(scandir=scandir, path=os.path, PathLike=os.PathLike)
    monkeypatch.setattr("snapshot_plugin.store.look.os", stopped)


# What the index alone cannot answer --------------------------------------------------------------------------


async def test_store_is_opened_while_requested_sessions_are_unindexed(tmp_path: Path) -> None:
    async with stored(tmp_path, *SESSIONS) as store:
        cache = tmp_path / "cache"
        await indexed(store, cache, only={"a"})
        assert ready(store, cache) is None
        assert answered(str(store.path), cache, lambda sessions: ape([s for s in sessions if s.session_id == "a"]))
        await indexed(store, cache)
        assert ready(store, cache) is not None


async def test_unreadable_session_is_retried_each_time(tmp_path: Path) -> None:
    async with stored(tmp_path, *SESSIONS) as store:
        (file,) = store.session_dir("a").glob("*.snap.gz")
        file.write_bytes(b"nonsense")
        await indexed(store, tmp_path / "cache")
        assert ready(store, tmp_path / "cache") is None


async def test_live_session_does_not_invalidate_the_index_but_a_crashed_one_does(tmp_path: Path) -> None:
    async with stored(tmp_path, *SESSIONS) as store:
        cache = tmp_path / "cache"
        await indexed(store, cache)
        directory = store.session_dir("b")
        lease = Lease.acquire(directory, Owner.this_process(since=datetime.now(UTC)))
        name = (directory / ".lease").read_bytes()
        assert ready(store, cache) is not None
        lease.release()
        assert ready(store, cache) is not None
        (directory / ".lease").write_bytes(name)  # what is left of an owner that was killed
        assert ready(store, cache) is None


async def test_an_encrypted_store_is_always_opened(tmp_path: Path) -> None:
    async with stored(tmp_path, *SESSIONS, key="k") as store:
        cache = tmp_path / "cache"
        await indexed(store, cache)
        assert ready(store, cache) is None
        assert [file.suffix for file in cache.iterdir()] == [".sealed"]


async def test_index_of_a_formerly_plain_store_does_not_answer_for_an_encrypted_one(tmp_path: Path) -> None:
    async with stored(tmp_path, *SESSIONS) as store:
        await indexed(store, tmp_path / "cache")
        marker = store.path / "STORE.json"
        marker.write_bytes(marker.read_bytes().replace(b'"encrypted": false', b'"encrypted": true'))
        assert ready(store, tmp_path / "cache") is None


@pytest.mark.parametrize("sql", ["DROP TABLE message", "DROP TABLE session", "UPDATE listing SET metas = 1"])
async def test_damaged_index_does_not_answer(tmp_path: Path, sql: str) -> None:
    async with stored(tmp_path, *SESSIONS) as store:
        cache = tmp_path / "cache"
        await indexed(store, cache)
        with sqlite3.connect(index_file(cache)) as connection:
            connection.execute(sql)
        connection.close()
        assert ready(store, cache) is None


async def test_concurrent_save_is_in_the_next_answer(tmp_path: Path) -> None:
    async with stored(tmp_path, *SESSIONS) as store:
        cache = tmp_path / "cache"
        session = SESSIONS[1]
        for number in range(20):  # faster than clocks tick
            session = session.append(make_message("ape"))
            await store.save(session)
            assert await anyio.to_thread.run_sync(ready, store, cache) is None
            await indexed(store, cache)
            answer = ready(store, cache)
            assert answer is not None
            assert answer[0].counts["b"] == number + 2
