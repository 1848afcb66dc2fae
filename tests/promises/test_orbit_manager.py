"""What orbitmesh promises authors of orchestrators, asked of the public Python interface."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from snapshot_plugin import (
    MemoryStore,
    Message,
    SessionSnapshot,
    SnapshotConfig,
    SnapshotManager,
    SnapshotNotFound,
    StoreUnavailable,
    create_or_resume_session,
)

pytestmark = pytest.mark.anyio
PATIENCE = 60.0
SLOW: Mapping[str, Any] = {"snapshot_interval": 600, "event_debounce": 600}


def settings(**values: Any) -> SnapshotConfig:
    return SnapshotConfig(**{"enable_persistence": True, "snapshot_on_signal": False, **values})


class Chat:
    """A session as an author writes it."""

    def __init__(self, session_id: str, snapshot: SessionSnapshot | None = None) -> None:
        self.session_id = session_id
        now = datetime.now(UTC)
        self.state = snapshot or SessionSnapshot(session_id=session_id, created_at=now, updated_at=now)

    def say(self, text: str) -> None:
        self.state = self.state.append(Message(role="user", content=text))

    def snapshot(self) -> SessionSnapshot:
        return self.state


class Unsteady(MemoryStore):
    """A store whose disk is full, cannot be read, or does not answer, whenever a test says so."""

    full = unreadable = False
    answered: anyio.Event | None = None

    async def save(self, *args: Any, **options: Any) -> Any:
        if self.answered is not None:
            await self.answered.wait()
        if self.full:
            raise StoreUnavailable("the disk is full")
        return await super().save(*args, **options)

    async def read(self, *args: Any, **options: Any) -> Any:
        if self.unreadable:
            raise StoreUnavailable("the disk does not answer")
        return await super().read(*args, **options)


@pytest.mark.requirement(
    "ORBIT-METRIC-SAVES",
    "ORBIT-METRIC-SIZE",
    "ORBIT-METRIC-SAVE-TIME",
    "ORBIT-METRIC-RESTORES",
    "ORBIT-METRIC-RESTORE-TIME",
    "MANAGER-METRIC-PYTHON",
)
async def test_saves_and_restores_are_counted_with_sizes_and_durations() -> None:
    store, chat = Unsteady(), Chat("chat")
    manager = SnapshotManager(store, settings())
    sizes = []
    for number in range(3):
        chat.say(f"message {number} " + "word " * 100 * number)
        sizes.append((await manager.snapshot(chat)).size_bytes)
    for _ in range(2):
        await manager.restore("chat")
    store.unreadable = True
    for _ in range(4):
        with pytest.raises(StoreUnavailable):
            await manager.restore("chat")

    now = manager.metrics.snapshot()
    assert (now.saved, now.restored) == (3, {"snapshot": 2})
    assert now.failed == {"restore": 4}
    assert (now.save_size_bytes.count, now.save_size_bytes.total) == (3, sum(sizes))
    assert (now.save_size_bytes.least, now.save_size_bytes.most) == (min(sizes), max(sizes))
    for seconds, count in ((now.save_seconds, 3), (now.restore_seconds, 2)):
        assert seconds.count == count
        assert seconds.least is not None
        assert seconds.most is not None
        assert 0 <= seconds.least <= seconds.most < PATIENCE


@pytest.mark.requirement("ORBIT-METRIC-SAVES")
async def test_failed_explicit_save_is_counted_and_reported() -> None:
    store, chat, told = Unsteady(), Chat("chat"), []
    manager = SnapshotManager(store, settings())
    manager.events.subscribe(lambda event: told.append(event.name))
    store.full = True
    with pytest.raises(StoreUnavailable):
        await manager.snapshot(chat)
    assert manager.metrics.snapshot().failed == {"save": 1}
    assert told == ["snapshot_failed"]


class Provider:
    """Can start, load and stop sessions, and remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any, SessionSnapshot | None]] = []

    async def create_session(self, session_id: str, config: Any) -> Chat:
        self.told.append(("create", config, None))
        return Chat(session_id)

    async def load_session(self, session_id: str, config: Any, snapshot: SessionSnapshot) -> Chat:
        self.told.append(("load", config, snapshot))
        return Chat(session_id, snapshot)

    async def stop_session(self, session: Chat) -> None:
        self.told.append(("stop", None, None))


@pytest.mark.requirement(
    "ORBIT-ACP-LOAD",
    "ORBIT-MODEL-CONFIG",
    "ORBIT-MODEL-TASK",
    "ORBIT-MODEL-METRICS",
    "ORBIT-MODEL-METADATA",
    "ORBIT-SUCCESS-STATE",
    "ORBIT-FACTORY-RESUME",
    "ORBIT-FACTORY-CREATE",
    "ORBIT-FACTORY-RESUMABLE",
)
async def test_a_session_is_rebuilt_with_configuration_history_task_and_metrics() -> None:
    store, provider = MemoryStore(), Provider()
    async with SnapshotManager(store, settings(**SLOW)) as manager:
        session, report = await create_or_resume_session(provider, "chat", "config", manager)
        assert (report.grade, report.resumed) == ("fresh", False)
        session.say("hello")
        session.state = session.state.evolve(
            config={"cwd": "/work", "model": "large-1", "options": {"maxContextTokens": 128000}},
            current_task="debugging",
            metrics={"turns": 1, "input_tokens": 12, "output_tokens": 156, "total_tokens": 168},
            metadata={"files": ["auth.py"]},
        )
    before = session.state
    async with SnapshotManager(store, settings(**SLOW)) as manager:
        again, report = await create_or_resume_session(provider, "chat", "config", manager)
    assert (report.grade, report.resumed, report.messages) == ("native-load", True, 1)
    assert [what for what, _, _ in provider.told] == ["create", "load"]
    assert provider.told[1][2] == again.state == before
    assert (again.state.config.model, again.state.current_task) == ("large-1", "debugging")
    assert (again.state.metrics.total_tokens, again.state.metadata["files"]) == (168, ["auth.py"])


@pytest.mark.requirement("ORBIT-ACP-LOAD-ERROR")
async def test_restoring_an_unsaved_session_raises_an_error_naming_it() -> None:
    with pytest.raises(SnapshotNotFound) as caught:
        await SnapshotManager(MemoryStore(), settings()).restore("nobody")
    assert caught.value.session_id == "nobody"


async def seqs(store: MemoryStore, session_id: str) -> list[int]:
    return [meta.seq for meta in await store.history(session_id)] if await known(store, session_id) else []


async def known(store: MemoryStore, session_id: str) -> bool:
    return session_id in [meta.session_id for meta in await store.list()]


async def grown(store: MemoryStore, session_id: str, messages: int) -> None:
    """Wait until a session has been saved with so many messages."""
    with anyio.fail_after(PATIENCE):
        while not await known(store, session_id) or len((await store.load(session_id)).messages) < messages:  # noqa: ASYNC110 — the store is the only witness
            await anyio.sleep(0.01)


@pytest.mark.requirement(
    "ORBIT-MANAGER-START", "ORBIT-MANAGER-STOP", "ORBIT-CONFIG-STARTS", "ORBIT-CONFIG-STOPS", "ORBIT-TEST-INTERVAL"
)
async def test_started_session_is_saved_at_its_interval_and_once_more_when_stopped() -> None:
    store, stopped, going_on = MemoryStore(), Chat("stopped"), Chat("going-on")
    async with SnapshotManager(store, settings(snapshot_interval=0.02, event_debounce=600)) as manager:
        assert await manager.session_started(stopped)
        assert await manager.session_started(going_on)
        stopped.say("saved by itself")
        await grown(store, "stopped", 1)
        stopped.say("last words")
        assert (await manager.session_stopped("stopped")).status == "saved"
        before = await seqs(store, "stopped")
        assert len((await store.load("stopped")).messages) == 2
        stopped.say("too late")
        for number in range(1, 4):
            going_on.say(f"{number}")
            await grown(store, "going-on", number)
        assert await seqs(store, "stopped") == before


@pytest.mark.requirement("ORBIT-CONFIG-STARTS", "ORBIT-CONFIG-ENABLE", "ONERING-OPTION-OFF", "ONERING-GOAL-OPT-IN")
async def test_without_persistence_a_started_session_is_never_saved() -> None:
    store, chat = MemoryStore(), Chat("chat")
    async with SnapshotManager(store, settings(enable_persistence=False)) as manager:
        assert not await manager.session_started(chat)
        chat.say("hello")
        manager.touch("chat")
        assert (await manager.session_stopped("chat")).status == "not_live"
    assert await store.list() == []


@pytest.mark.requirement("ORBIT-ACP-BACKGROUND", "TERMINAL-FEATURE-NON-BLOCKING")
async def test_hanging_disk_delays_no_user_input() -> None:
    store, chat = Unsteady(), Chat("chat")
    async with SnapshotManager(store, settings(snapshot_interval=0.01, event_debounce=0.01)) as manager:
        await manager.session_started(chat)
        await grown(store, "chat", 0)
        store.answered = anyio.Event()
        with anyio.fail_after(PATIENCE):
            for number in range(100):
                chat.say(f"{number}")
                manager.touch("chat")
                await anyio.lowlevel.checkpoint()
        store.answered.set()
        await grown(store, "chat", 100)


@pytest.mark.requirement("ORBIT-MANAGER-CONCURRENT")
async def test_many_sessions_are_saved_and_restored_concurrently() -> None:
    store, chats = MemoryStore(), [Chat(f"chat-{number}") for number in range(40)]
    async with SnapshotManager(store, settings(**SLOW)) as manager:

        async def live(chat: Chat) -> None:
            await manager.session_started(chat)
            for number in range(3):
                chat.say(f"{chat.session_id} {number}")
                await manager.snapshot(chat)
            found = (await manager.restore(chat.session_id)).snapshot
            assert [message.text for message in found.messages] == [f"{chat.session_id} {n}" for n in range(3)]

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for chat in chats:
                    tasks.start_soon(live, chat)
    assert len(await store.list()) == 40


@pytest.mark.requirement("MANAGER-AUTO-DEBOUNCE", "TERMINAL-PERF-BATCH", "ONERING-CARE-DEBOUNCE")
async def test_stream_of_events_is_saved_while_it_runs_in_few_saves() -> None:
    store, chat, said = MemoryStore(), Chat("chat"), 0
    async with SnapshotManager(store, settings(snapshot_interval=600, event_debounce=0.2)) as manager:
        await manager.session_started(chat)
        with anyio.fail_after(PATIENCE):
            while not await known(store, "chat") or len(await seqs(store, "chat")) < 3:
                for _ in range(10):
                    chat.say(f"{said}")
                    manager.touch("chat")
                    said += 1
                await anyio.sleep(0.01)
        assert said > 10 * len(await seqs(store, "chat"))


@pytest.mark.requirement("MANAGER-FAULT-CANCEL")
async def test_cancelled_last_save_leaves_the_old_or_the_new_snapshot() -> None:
    store, chat = Unsteady(), Chat("chat")
    chat.say("old")
    async with SnapshotManager(store, settings(**SLOW)) as manager:
        await manager.session_started(chat)
        await manager.snapshot(chat)
        old = await store.load("chat")
        chat.say("new")
        store.answered = anyio.Event()
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(manager.session_stopped, "chat")
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
                store.answered.set()
        assert await store.load("chat") in (old, chat.state)
        assert (await store.check()).ok
