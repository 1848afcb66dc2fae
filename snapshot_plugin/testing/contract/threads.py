"""**Synchronous calls**: ``store.sync`` has the same methods, callable from any thread."""
# ruff: noqa: S101, D102, PLR2004 — a test suite: its names are its docstrings

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import anyio
import anyio.to_thread
import pytest

from snapshot_plugin.errors import Conflict, SnapshotNotFound, StoreUnavailable
from snapshot_plugin.live.place import place_of
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.store.sync import SyncStore
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.contract.stage import PATIENCE, Opener, Stage, facts_of

__all__ = ["Threads"]


class Threads(Stage):
    """Callers without an event loop."""

    async def test_every_method_works_as_a_plain_call_in_a_thread(self, opened: Opener) -> None:
        await anyio.to_thread.run_sync(_live, opened().sync)

    async def test_a_store_says_what_it_can_do_beyond_the_contract(self, opened: Opener) -> None:
        store = opened()
        assert store.capabilities == opened().capabilities
        assert store.capabilities.live == (place_of(store) is not None)

    async def test_what_one_face_saves_the_other_loads(self, opened: Opener) -> None:
        store = opened()
        await anyio.to_thread.run_sync(store.sync.save, make_snapshot("a"))
        await store.save(make_snapshot("a", "b"))

        loaded = await anyio.to_thread.run_sync(store.sync.load, "session")

        assert loaded == make_snapshot("a", "b") == await store.load("session")
        history = await anyio.to_thread.run_sync(store.sync.history, "session")
        assert facts_of(history) == facts_of(await store.history("session"))

    async def test_a_stale_writer_is_refused_by_either_face(self, opened: Opener) -> None:
        stale, other = opened(), opened()
        await anyio.to_thread.run_sync(stale.sync.save, make_snapshot("a"))
        await other.save(make_snapshot("a", "other"), base=1)

        def save() -> None:
            with pytest.raises(Conflict):
                stale.sync.save(make_snapshot("a", "stale"))

        await anyio.to_thread.run_sync(save)
        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"))

    async def test_threads_and_event_loops_save_one_session_through_one_store_object(self, opened: Opener) -> None:
        store, failed = opened(), []

        def in_a_thread(number: int) -> None:
            for turn in range(5):
                store.sync.save(make_snapshot(f"thread {number}", f"turn {turn}"))

        def in_a_loop(number: int) -> None:
            async def live() -> None:
                for turn in range(5):
                    await store.save(make_snapshot(f"loop {number}", f"turn {turn}"))

            anyio.run(live)

        def guarded(work: Callable[[int], None], number: int) -> None:
            try:
                work(number)
            except BaseException as error:  # noqa: BLE001 — told by the test itself
                failed.append(error)

        threads = [
            threading.Thread(target=guarded, args=(work, number), daemon=True)
            for number in range(3)
            for work in (in_a_thread, in_a_loop)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            await anyio.to_thread.run_sync(thread.join, PATIENCE)
        assert not failed
        assert [meta.seq for meta in await opened().history("session")] == list(range(30, 0, -1))
        assert (await opened().check()).ok

    async def test_a_store_closed_through_one_face_is_closed_for_both(self, opened: Opener) -> None:
        store = opened()
        await anyio.to_thread.run_sync(store.sync.save, make_snapshot("a"))
        await anyio.to_thread.run_sync(store.sync.close)

        with pytest.raises(StoreUnavailable):
            await store.save(make_snapshot("a", "b"))
        with pytest.raises(StoreUnavailable):
            await anyio.to_thread.run_sync(store.sync.save, make_snapshot("a", "b"))


def _live(store: SyncStore) -> None:
    for length in (1, 2, 3):
        assert store.save(make_snapshot(*"abc"[:length])).seq == length
    assert store.load("session", at=2) == make_snapshot("a", "b")
    assert store.read("session").ref.seq == 3
    assert [meta.session_id for meta in store.list()] == ["session"]
    store.forget("session", RetentionPolicy(keep_last=1))
    assert [meta.seq for meta in store.history("session")] == [3]
    assert store.check().ok
    trashed = store.delete("session")
    assert [entry.token for entry in store.trash()] == [trashed.token]
    with pytest.raises(SnapshotNotFound):
        store.load("session")
    assert store.undelete(trashed.token) == "session"
    store.delete("session")
    assert len(store.purge(older_than=timedelta(0))) == 1
