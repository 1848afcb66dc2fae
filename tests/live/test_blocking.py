"""Stores that have only asynchronous methods are used from threads too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import FilesystemStore, MemoryStore, SnapshotManager
from snapshot_plugin.live.recovery import recover
from snapshot_plugin.model import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore
from tests.live.events import NOW, PATIENCE
from tests.manager.sessions import Chat, managing

pytestmark = pytest.mark.anyio


class AsyncOnly:
    """A store as someone may write it: every method of another one, but no synchronous face."""

    def __init__(self, inner: SnapshotStore) -> None:
        self._inner = inner
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "sync":
            raise AttributeError(name)
        self.calls.append(name)
        return getattr(self._inner, name)


@pytest.mark.requirement("ONERING-USAGE-BACKEND")
async def test_manager_saves_to_a_store_that_has_only_asynchronous_methods() -> None:
    store: Any = AsyncOnly(MemoryStore())
    chat = Chat("chat", "one")
    with anyio.fail_after(PATIENCE):
        async with managing(store, snapshot_interval=600) as (manager, _):
            await manager.start_auto_snapshot(chat)
            assert (await manager.snapshot(chat)).seq == 1
            chat.say("two")
        assert (manager.unsaved, len((await store.load("chat")).messages)) == ((), 2)
    assert store.calls.count("save") == 2


async def test_records_are_recovered_into_a_store_that_changes_what_is_saved(tmp_path: Path) -> None:
    class Titled(FilesystemStore):
        async def save(self, snapshot: SessionSnapshot, **options: Any) -> Any:
            return await super().save(snapshot.evolve(title="theirs"), **options)

    async with FilesystemStore(tmp_path) as store:
        dead = SnapshotManager(store)
        async with dead.leasing("chat") as managed:
            await managed.take()
            assert dead.record("chat", {"message": {"role": "user", "content": "one"}})
    async with Titled(tmp_path) as store:
        (found,) = await recover(store, now=NOW)
        assert (found.records, found.problem) == (1, None)
        assert (await store.load("chat")).title == "theirs"


async def test_cancelled_save_ends_the_call_of_an_asynchronous_store() -> None:
    class Stuck(MemoryStore):
        async def save(self, *_args: Any, **_options: Any) -> Any:
            begun.set()
            await anyio.sleep_forever()

    begun, manager = anyio.Event(), SnapshotManager(Stuck())
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.snapshot, Chat("chat", "one"))
            await begun.wait()
            tasks.cancel_scope.cancel()
    assert manager.live == ()
