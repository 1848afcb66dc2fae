"""The sessions of a manager: flushes wait for the disk, cancellation leaves nothing taken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, Message, SessionSnapshot, SnapshotManager, StoreUnavailable
from snapshot_plugin.live import spool
from snapshot_plugin.live.lease import Lease
from snapshot_plugin.live.ports import Record
from snapshot_plugin.live.spool import Spool
from snapshot_plugin.store.hop import in_thread
from snapshot_plugin.system import files

pytestmark = pytest.mark.anyio
PATIENCE = 60.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FilesystemStore]:
    async with FilesystemStore(tmp_path / "store") as opened:
        yield opened


async def test_concurrent_flush_waits_until_the_data_is_on_disk(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush in progress may cover this caller's record."""
    let_go, begun, done = threading.Event(), threading.Event(), []

    def slow(fd: int) -> None:
        begun.set()
        assert let_go.wait(PATIENCE)
        files.sync_data(fd)

    manager = SnapshotManager(store)
    async with manager.leasing("s") as managed:
        await managed.take()
        monkeypatch.setattr(spool, "sync_data", slow)
        assert manager.record("s", {"n": 1})

        async def flush(who: str) -> None:
            await in_thread(managed.live.flush)
            done.append(who)

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(flush, "first")
                await anyio.to_thread.run_sync(begun.wait, PATIENCE)
                tasks.start_soon(flush, "second")
                await anyio.wait_all_tasks_blocked()
                assert done == []
                let_go.set()
    assert sorted(done) == ["first", "second"]


def apply_words(snapshot: SessionSnapshot, records: Sequence[Record]) -> SessionSnapshot:
    said = tuple(Message(role="user", content=record.data["word"]) for record in records)
    return snapshot.evolve(messages=(*snapshot.messages, *said))


async def test_manager_registers_a_providers_reducer(store: FilesystemStore) -> None:
    first = SnapshotManager(store)
    async with first.leasing("s") as managed:
        await managed.take()
        assert first.record("s", {"provider_type": "words", "word": "hello"})
    manager = SnapshotManager(store)
    manager.add_reducer("words", apply_words)
    manager.add_reducer("words", lambda snapshot, _records: snapshot)  # one that is there stays
    async with manager.leasing("s") as managed:
        await managed.take()
        found = await manager.read("s")
    assert [message.text for message in found.snapshot.messages] == ["hello"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("take", ["Lease.acquire", "Spool.open"])
async def test_asyncio_cancellation_while_taking_a_session_leaves_nothing_taken(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch, take: str, anyio_backend: str
) -> None:
    """`asyncio.timeout` around `take` expires while a thread is taking the lease or opens the spool."""
    _ = anyio_backend
    begun, go_on = threading.Event(), threading.Event()
    owner, name = {"Lease": Lease, "Spool": Spool}[take.split(".", maxsplit=1)[0]], take.split(".")[1]
    method = getattr(owner, name)

    def slow(*args: object, **options: object) -> object:
        taken = method(*args, **options)
        begun.set()
        assert go_on.wait(PATIENCE)
        return taken

    monkeypatch.setattr(owner, name, slow)
    manager = SnapshotManager(store)
    async with manager.leasing("s") as managed:
        task = asyncio.create_task(managed.take())
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert managed.live.hold is None
    monkeypatch.undo()

    async with SnapshotManager(store).leasing("s") as again:
        await again.take()
        assert again.live.hold is not None


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancellation_is_not_swallowed_by_an_error_of_the_cancelled_work(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    """The disk refuses the lease just when the caller's time is up: the caller still sees its cancellation."""
    _ = anyio_backend
    begun, go_on = threading.Event(), threading.Event()

    def refuse(*_args: object, **_options: object) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        raise StoreUnavailable("read-only")

    monkeypatch.setattr(Lease, "acquire", refuse)
    async with SnapshotManager(store).leasing("s") as managed:
        task = asyncio.create_task(managed.take())
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
