"""Saving by itself: when, how often, and what failures do to it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import FilesystemStore, MemoryStore, StoreUnavailable
from snapshot_plugin.live.schedule import Schedule, backoff
from snapshot_plugin.manager.events import SnapshotCreated, SnapshotFailed, SnapshotSkipped
from snapshot_plugin.system.files import locked
from snapshot_plugin.testing import Fault, FaultyCall, FaultyStore
from tests.manager.sessions import PATIENCE, Chat, managing
from tests.tries import tries

anyio_only = pytest.mark.anyio
_FULL = StoreUnavailable("no space left")


def _schedule(interval: float = 300) -> Schedule:
    return Schedule(interval=interval, debounce=2, retry_first=1, retry_max=60, now=1000)


def test_a_quiet_session_is_due_after_its_interval() -> None:
    schedule = _schedule()
    assert schedule.due == 1300
    schedule.begun()
    schedule.saved(1301)
    assert schedule.due == 1601


@pytest.mark.requirement("MANAGER-AUTO-DEBOUNCE")
def test_important_event_makes_one_save_due_soon() -> None:
    schedule = _schedule()
    for now in (1010.0, 1011.0, 1011.9):
        schedule.touched(now)
    assert schedule.due == 1012


def test_important_event_does_not_delay_a_save_that_is_nearly_due() -> None:
    schedule = _schedule()
    schedule.touched(1299.5)
    assert schedule.due == 1300


def test_event_during_a_save_makes_the_next_save_due() -> None:
    schedule = _schedule()
    schedule.touched(1010)
    schedule.begun()
    schedule.touched(1013)
    schedule.saved(1014)
    assert schedule.due == 1015


def test_after_failures_only_the_backoff_counts_until_a_success() -> None:
    schedule = _schedule(interval=1)
    for now, due in ((1001, 1002), (1002, 1004), (1004, 1008)):
        schedule.begun()
        schedule.failed(now)
        schedule.touched(now)
        assert schedule.due == due
    schedule.begun()
    schedule.saved(1008)
    assert schedule.due == 1009


@pytest.mark.requirement("MANAGER-AUTO-BACKOFF")
@given(st.integers(1, 10_000), st.floats(0.001, 100), st.floats(0.001, 1000))
@tries(50)
def test_backoff_grows_and_is_bounded(failures: int, first: float, most: float) -> None:
    wait = backoff(failures, first=first, most=most)
    assert 0 < wait <= most
    assert wait <= backoff(failures + 1, first=first, most=most)


@pytest.mark.requirement(
    "MANAGER-AUTO-UNCHANGED",
    "MANAGER-AUTO-BACKENDS",
    "ORBIT-MANAGER-START",
    "ORBIT-TEST-INTERVAL",
    "TERMINAL-QUALITY-TRANSPARENT",
)
@anyio_only
async def test_changed_session_is_saved_automatically_and_an_unchanged_one_is_not() -> None:
    store, chat = FaultyStore(MemoryStore()), Chat("chat", "one")
    async with managing(store) as (manager, diary):
        await manager.start_auto_snapshot(chat)
        await diary.wait_for(SnapshotCreated)
        await diary.wait_for(SnapshotSkipped, 3)
        chat.say("two")
        await diary.wait_for(SnapshotCreated, 2)
    assert [call.method for call in store.calls].count("save") == 2
    assert [event.trigger for event in diary.of(SnapshotCreated)] == ["auto", "auto"]


@anyio_only
async def test_a_new_session_is_saved_soon_without_waiting_for_the_interval() -> None:
    async with managing(MemoryStore(), snapshot_interval=600) as (manager, diary):
        await manager.start_auto_snapshot(Chat("chat", "one"))
        await diary.wait_for(SnapshotCreated)


@pytest.mark.requirement(
    "MANAGER-AUTO-DEBOUNCE",
    "ORBIT-ACP-EVENT",
    "ONERING-CARE-DEBOUNCE",
    "TERMINAL-PERF-TOKENS",
    "TERMINAL-PERF-BATCH",
)
@anyio_only
async def test_a_touch_saves_soon_and_many_touches_save_once() -> None:
    async with managing(MemoryStore(), snapshot_interval=600) as (manager, diary):
        chat = Chat("chat", "one")
        await manager.start_auto_snapshot(chat)
        await diary.wait_for(SnapshotCreated)
        await manager.restore("chat")  # by now the task sleeps until the interval is over
        await anyio.wait_all_tasks_blocked()
        for number in range(50):
            chat.say(str(number))
            manager.touch("chat")
        await diary.wait_for(SnapshotCreated, 2)
        manager.touch("nobody")
    assert [event.seq for event in diary.of(SnapshotCreated)] == [1, 2]


@pytest.mark.requirement("MANAGER-FAULT-START-TWICE")
@anyio_only
async def test_restarting_changes_the_interval_without_a_second_task() -> None:
    async with managing(MemoryStore(), snapshot_interval=600, event_debounce=600) as (manager, diary):
        chat = Chat("chat", "one")
        await manager.start_auto_snapshot(chat)
        await manager.start_auto_snapshot(chat, 0.01)
        await diary.wait_for(SnapshotCreated)
        await manager.stop_auto_snapshot("chat")
        asked = chat.asked
        chat.say("unseen")
        await anyio.wait_all_tasks_blocked()
    assert chat.asked == asked


@pytest.mark.requirement("MANAGER-AUTO-COALESCE")
@anyio_only
async def test_concurrent_saves_share_the_next_one() -> None:
    gate = anyio.Event()

    def first_waits(call: FaultyCall) -> Fault | None:
        return Fault(hold=gate) if (call.method, call.number) == ("save", 1) else None

    store, chat = FaultyStore(MemoryStore(), first_waits), Chat("chat", "one")
    refs = []
    async with managing(store, snapshot_interval=600, event_debounce=600) as (manager, _):
        await manager.start_auto_snapshot(chat)

        async def save() -> None:
            refs.append(await manager.snapshot(chat))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(save)
                await anyio.wait_all_tasks_blocked()
                chat.say("two")
                for _ in range(20):
                    tasks.start_soon(save)
                await anyio.wait_all_tasks_blocked()
                gate.set()
        assert chat.asked == 2
    assert sum(call.method == "save" for call in store.calls) == 2
    assert sorted(ref.seq for ref in refs) == [1] + [2] * 20
    assert len((await store.load("chat")).messages) == 2


@pytest.mark.requirement(
    "MANAGER-AUTO-NEVER-RAISES",
    "MANAGER-AUTO-BACKOFF",
    "MANAGER-AUTO-CATCH-UP",
    "ORBIT-EVENT-FAILED",
    "ORBIT-METRIC-SAVES",
    "TERMINAL-FEATURE-SAVE-ERRORS",
)
@anyio_only
async def test_failed_save_is_reported_and_retried_until_it_succeeds() -> None:
    def full(call: FaultyCall) -> Fault | None:
        return Fault(error=_FULL) if call.method == "save" and call.number <= 4 else None

    chat = Chat("chat", "one")
    async with managing(FaultyStore(MemoryStore(), full)) as (manager, diary):
        await manager.start_auto_snapshot(chat)
        await diary.wait_for(SnapshotFailed, 2)
        chat.say("two")
        await diary.wait_for(SnapshotCreated)
        restored = await manager.restore("chat")
    failures = diary.of(SnapshotFailed)
    assert [event.failures for event in failures] == [1, 2, 3, 4]
    assert [event.retry_in for event in failures] == [0.005, 0.01, 0.02, 0.02]
    assert {(event.operation, event.code, event.retryable) for event in failures} == {
        ("save", "store_unavailable", True)
    }
    assert len(restored.snapshot.messages) == 2
    assert manager.metrics.snapshot().failed == {"save": 4}


@pytest.mark.requirement("ORBIT-MANAGER-CONCURRENT")
@anyio_only
async def test_many_sessions_are_saved_a_few_at_a_time() -> None:
    under_way = most = 0
    together = anyio.Event()

    class Counting(MemoryStore):
        async def save(self, *args: object, **options: object) -> object:  # type: ignore[override]
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            if most == 3:
                together.set()
            try:
                with anyio.move_on_after(0.4):  # before the first counts as stuck
                    await together.wait()
                return await super().save(*args, **options)  # type: ignore[arg-type]
            finally:
                under_way -= 1

    async with managing(Counting(), max_concurrent_saves=3) as (manager, diary):
        for number in range(30):
            await manager.start_auto_snapshot(Chat(f"chat-{number}", "one"))
        await diary.wait_for(SnapshotCreated, 30)
    assert most == 3


@anyio_only
@pytest.mark.requirement("MANAGER-AUTO-LOCKED")
async def test_locked_sessions_do_not_delay_the_saves_of_others(tmp_path: Path) -> None:
    place = FilesystemStore(tmp_path, lock_timeout=10 * PATIENCE)
    async with place as store, managing(store, max_concurrent_saves=2) as (manager, diary):
        chats = [Chat(name, "one") for name in ("locked-1", "locked-2", "other")]
        for chat in chats:
            await manager.start_auto_snapshot(chat)
        await diary.wait_for(SnapshotCreated, 3)
        with ExitStack() as locks:
            for name in ("locked-1", "locked-2"):
                locks.enter_context(locked(store.path / "sessions" / name / ".lock", session_id=name, timeout=1))
            for chat in chats:
                chat.say("two")
            await diary.wait_for(SnapshotCreated, 4)
            assert diary.of(SnapshotCreated)[-1].session_id == "other"
        await diary.wait_for(SnapshotCreated, 6)
