"""Sessions that a host records from events are sessions of the manager too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import (
    FilesystemStore,
    InvalidInput,
    MemoryStore,
    SessionLocked,
    SnapshotManager,
    SnapshotNotFound,
    StoreUnavailable,
)
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.manager.events import SnapshotCreated, SnapshotFailed
from snapshot_plugin.store.hop import in_thread
from snapshot_plugin.testing import Fault, FaultyCall, FaultyStore
from tests.live.events import PATIENCE, Said, blank, texts
from tests.manager.sessions import Chat, managing

pytestmark = pytest.mark.anyio


async def begun(sessions: LiveSessions, session_id: str = "s") -> Any:
    return await in_thread(sessions.begin, blank(session_id), {"say": "one"})


async def test_a_recorded_session_is_live_saved_with_all_others_and_finished_on_close(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        async with managing(store, snapshot_interval=600) as (manager, diary):
            await manager.start_auto_snapshot(Chat("chat", "one"))
            live = await begun(manager.recording(Said))
            assert set(manager.live) == {"chat", "s"}
            report = await manager.snapshot_all("tag", timeout=PATIENCE)
            assert {outcome.session_id: outcome.status for outcome in report.outcomes} == {
                "chat": "saved",
                "s": "saved",
            }
            live.record({"say": "two"})
        assert texts(await store.load("s")) == ["one", "two"]
        assert [meta.snapshot_tags for meta in await store.history("s")][1] == ("tag",)
        await diary.wait_for(SnapshotCreated, where=lambda event: event.session_id == "s")
        assert manager.live == ()


async def test_another_process_can_request_a_save_of_a_recorded_session(tmp_path: Path) -> None:
    async with (
        FilesystemStore(tmp_path) as store,
        FilesystemStore(tmp_path) as again,
        managing(store) as (first, _),
        managing(again) as (second, _),
    ):
        await begun(first.recording(Said))
        report = await second.snapshot_all(timeout=PATIENCE)
        assert [(outcome.session_id, outcome.status) for outcome in report.outcomes] == [("s", "saved")]
        with pytest.raises(SessionLocked):
            await in_thread(second.recording(Said).begin, blank())


async def test_manager_operations_work_on_recorded_sessions(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store, managing(store) as (manager, diary):
        live = await begun(manager.recording(Said))
        manager.set_current_task("s", "counting")
        assert await manager.session_started(Chat("s", "the same session, as its provider sees it"))
        assert (await manager.snapshot(Chat("s"))).seq >= 1
        live.record({"say": "two"})
        manager.touch("s")
        await diary.wait_for(SnapshotCreated, where=lambda event: event.trigger == "event")
        forked = await manager.fork("s", as_id="t")
        assert texts(forked) == ["one", "two"]
        assert (await manager.stop_auto_snapshot("s")).status == "saved"
        assert (manager.live, (await manager.stop_auto_snapshot("s")).status) == ((), "not_live")


async def test_event_loop_bound_store_is_called_in_its_loop() -> None:
    refused: list[FaultyCall] = []

    def refuse(call: FaultyCall) -> Fault | None:
        if call.method == "save" and not refused:
            refused.append(call)
            return Fault(error=StoreUnavailable("full"))
        return None

    store = FaultyStore(MemoryStore(), refuse)
    async with managing(store) as (manager, diary):
        live = await begun(manager.recording(Said))
        await diary.wait_for(SnapshotFailed)
        await in_thread(lambda: live.record({"say": "two"}, durable=True))
        assert texts(await store.load("s")) == ["one", "two"]


async def test_hanging_last_save_does_not_block_the_manager_from_closing(tmp_path: Path) -> None:
    gate = anyio.Event()

    def hang(call: FaultyCall) -> Fault | None:
        return Fault(hold=gate) if call.method == "save" else None

    async with FilesystemStore(tmp_path) as inner:
        with anyio.fail_after(PATIENCE):
            async with managing(FaultyStore(inner, hang), exit_timeout=0.05) as (manager, _):
                sessions = manager.recording(Said)
                live = sessions.begin  # begun in a thread that the hanging save keeps
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(lambda: anyio.to_thread.run_sync(live, blank(), None, abandon_on_cancel=True))
                    while "s" not in manager.live:
                        await anyio.lowlevel.checkpoint()
                (outcome,) = await manager.close()
                gate.set()
        assert outcome.status in ("timeout", "failed")


async def test_recorded_sessions_need_an_open_manager_and_tasks_a_live_session() -> None:
    manager = SnapshotManager(MemoryStore())
    with pytest.raises(InvalidInput):
        manager.recording(Said)
    with pytest.raises(SnapshotNotFound):
        manager.set_current_task("nobody", "x")


async def test_caller_sets_a_sessions_current_task(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store, managing(store, snapshot_interval=600) as (manager, _):
        chat = Chat("chat", "one")
        await manager.start_auto_snapshot(chat)
        manager.set_current_task("chat", "counting")
        await manager.snapshot(chat)
        assert (await store.load("chat")).current_task == "counting"
        manager.set_current_task("chat", None)
        await manager.snapshot(chat)
        assert (await store.load("chat")).current_task is None
