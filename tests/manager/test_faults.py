"""Everything that can go wrong around a manager, and what then happens: each has one stated outcome."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import (
    Conflict,
    FilesystemStore,
    InvalidInput,
    InvalidSnapshot,
    MemoryStore,
    SessionLocked,
    SnapshotError,
    SnapshotManager,
    StoreUnavailable,
)
from snapshot_plugin.manager.events import Event, SnapshotCreated, SnapshotFailed
from snapshot_plugin.model import SessionSnapshot
from snapshot_plugin.store.s3 import ObjectStore, bucket_at
from snapshot_plugin.testing import Fault, FaultyCall, FaultyStore, FixedClock, every, make_message, make_snapshot
from tests.manager.sessions import PATIENCE, AsyncChat, Chat, Diary, managing, quick
from tests.store.s3_server import BUCKET, running

pytestmark = pytest.mark.anyio
_REFUSED = Fault(error=StoreUnavailable("the disk refused"))


class Bad:
    """A session that misbehaves until it is cured."""

    def __init__(self, session_id: str, sin: Any) -> None:
        self.session_id = session_id
        self.sin: Any = sin

    def snapshot(self) -> SessionSnapshot:
        if isinstance(self.sin, BaseException):
            raise self.sin
        return self.sin if self.sin is not None else make_snapshot("good", session_id=self.session_id)


@pytest.mark.requirement("MANAGER-FAULT-RAISES", "MANAGER-FAULT-OTHER-ID")
@pytest.mark.parametrize(
    ("sin", "kind"),
    [
        (ZeroDivisionError("oops"), SnapshotError),
        (asyncio.CancelledError(), SnapshotError),
        (make_snapshot("mine", session_id="somebody-else"), InvalidSnapshot),
        ("not a snapshot", InvalidSnapshot),
    ],
    ids=["raises", "awaited what was cancelled", "gives another session", "gives no snapshot"],
)
async def test_misbehaving_session_is_reported_and_saved_once_it_behaves(
    sin: Any, kind: type[SnapshotError]
) -> None:
    bad, good = Bad("bad", sin), Chat("good", "one")
    store = MemoryStore()
    async with managing(store) as (manager, diary):
        with pytest.raises(kind) as caught:
            await manager.snapshot(bad)
        await manager.start_auto_snapshot(bad)
        await manager.start_auto_snapshot(good)
        await diary.wait_for(SnapshotFailed, 2)
        await diary.wait_for(SnapshotCreated, where=lambda event: event.session_id == "good")
        assert [meta.session_id for meta in await store.list()] == ["good"]
        bad.sin = None
        await diary.wait_for(SnapshotCreated, where=lambda event: event.session_id == "bad")
    assert caught.value.session_id == "bad"
    assert {event.code for event in diary.of(SnapshotFailed)} == {caught.value.code}


@pytest.mark.requirement("MANAGER-FAULT-HANGS")
async def test_hanging_session_times_out_and_is_saved_once_it_answers() -> None:
    slow = AsyncChat("slow")
    slow.hold = anyio.Event()
    async with managing(MemoryStore(), snapshot_timeout=0.05) as (manager, diary):
        with anyio.fail_after(PATIENCE), pytest.raises(SnapshotError):
            await manager.snapshot(slow)
        await manager.start_auto_snapshot(slow)
        await diary.wait_for(SnapshotFailed, 2)
        slow.hold.set()
        await diary.wait_for(SnapshotCreated)


async def test_timeout_raised_by_the_session_is_not_mistaken_for_a_slow_one() -> None:
    manager = SnapshotManager(MemoryStore(), quick())
    with pytest.raises(SnapshotError) as caught:
        await manager.snapshot(Bad("bad", TimeoutError("mine")))
    assert isinstance(caught.value.__cause__, TimeoutError)


@pytest.mark.requirement("MANAGER-FAULT-INTERVAL")
@pytest.mark.parametrize("interval", [0, -1, float("nan"), "soon", True])
async def test_invalid_interval_is_refused(interval: Any) -> None:
    async with managing(MemoryStore()) as (manager, _):
        with pytest.raises(InvalidInput):
            await manager.start_auto_snapshot(Chat(), interval)
        with pytest.raises(InvalidInput):
            await manager.snapshot_all(timeout=interval)
        assert (await manager.stop_auto_snapshot("chat")).status == "not_live"


@pytest.mark.requirement("MANAGER-FAULT-STOP-UNKNOWN")
async def test_stopping_a_session_that_was_never_started_is_refused() -> None:
    async with managing(MemoryStore()) as (manager, _):
        outcome = await manager.stop_auto_snapshot("nobody")
    assert (outcome.status, outcome.seq) == ("not_live", None)


async def test_cancellation_does_not_lose_the_last_save() -> None:
    store = MemoryStore()
    with anyio.move_on_after(PATIENCE) as scope:
        async with managing(store, snapshot_interval=600, event_debounce=600) as (manager, diary):
            await manager.start_auto_snapshot(Chat("chat", "one"))
            scope.cancel()
            await anyio.sleep_forever()
    assert [event.trigger for event in diary.of(SnapshotCreated)] == ["exit"]
    assert len((await store.load("chat")).messages) == 1


@pytest.mark.requirement("MANAGER-FAULT-CANCEL")
async def test_cancelled_caller_still_stops_the_session_properly() -> None:
    store = MemoryStore()
    async with managing(store, snapshot_interval=600, event_debounce=600) as (manager, _):
        await manager.start_auto_snapshot(Chat("chat", "one"))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await manager.stop_auto_snapshot("chat")
        assert manager.live == ()
        assert len((await store.load("chat")).messages) == 1


async def test_cancellation_during_the_last_save_leaves_it_complete() -> None:
    begun, gate = anyio.Event(), anyio.Event()

    class Slow(MemoryStore):
        async def save(self, *args: Any, **options: Any) -> Any:
            begun.set()
            await gate.wait()
            return await super().save(*args, **options)

    store, chat = Slow(), Chat("chat", "one")
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:

            async def agent() -> None:
                async with managing(store, snapshot_interval=600, event_debounce=600) as (manager, _):
                    await manager.start_auto_snapshot(chat)

            tasks.start_soon(agent)
            await begun.wait()
            tasks.cancel_scope.cancel()
            gate.set()
    assert len((await store.load("chat")).messages) == 1


@pytest.mark.requirement("MANAGER-AUTO-EXIT")
async def test_last_save_that_hangs_is_abandoned_in_bounded_time_and_reported() -> None:
    stuck = FaultyStore(MemoryStore(), lambda _call: Fault(hold=anyio.Event()))
    with anyio.fail_after(PATIENCE):
        async with managing(stuck, exit_timeout=0.05) as (manager, diary):
            await manager.start_auto_snapshot(Chat("chat"))
            await anyio.wait_all_tasks_blocked()
            outcomes = await manager.close()
    assert [outcome.status for outcome in outcomes] == ["timeout"]
    assert diary.of(SnapshotFailed)[-1].operation == "save"


@pytest.mark.requirement("MANAGER-AUTO-EXIT-MANY")
async def test_last_saves_of_many_sessions_get_more_time() -> None:
    limit, slow = 0.1, {"snapshot_interval": 600, "event_debounce": 600}
    stuck = FaultyStore(MemoryStore(), lambda _call: Fault(hold=anyio.Event()))
    with anyio.fail_after(PATIENCE):
        async with managing(stuck, exit_timeout=limit, **slow) as (manager, _):
            for number in range(1000):
                await manager.start_auto_snapshot(Chat(f"chat-{number}"))
            outcomes = await manager.close()
    assert {outcome.problem for outcome in outcomes} == {f"not finished within {2 * limit:g} s"}
    assert {outcome.session_id for outcome in manager.unsaved} == {f"chat-{number}" for number in range(1000)}


@pytest.mark.requirement("MANAGER-AUTO-EXIT-MANY")
async def test_more_sessions_are_saved_at_once_when_the_manager_closes() -> None:
    gate, begun, saved = threading.Event(), threading.Event(), list[str | None]()

    def wait(call: FaultyCall) -> Fault | None:
        if call.method != "save":
            return None
        saved.append(call.session_id)
        if len(saved) == 8:
            begun.set()
        return Fault(hold=gate)

    with anyio.fail_after(PATIENCE):
        async with managing(FaultyStore(MemoryStore(), wait), snapshot_interval=600, event_debounce=600) as (
            manager,
            _,
        ):
            for number in range(20):
                await manager.start_auto_snapshot(Chat(f"chat-{number}"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(manager.close)
                is_begun = await anyio.to_thread.run_sync(begun.wait, 1.0)  # before the first are stuck, twice
                gate.set()
    assert is_begun
    assert len(saved) == 20
    assert manager.unsaved == ()


async def test_failed_last_save_is_reported_not_raised() -> None:
    async with managing(FaultyStore(MemoryStore(), every(1, _REFUSED, "save"))) as (manager, diary):
        await manager.start_auto_snapshot(Chat("chat"))
        outcome = await manager.stop_auto_snapshot("chat")
    assert (outcome.status, outcome.code) == ("failed", "store_unavailable")
    assert diary.of(SnapshotFailed)[-1].code == "store_unavailable"


@pytest.mark.requirement("MANAGER-FAULT-TWO-MANAGERS", "ONERING-CARE-ONE-WRITER", "MANAGER-LEASE-ONE")
async def test_second_manager_gets_an_error_that_names_the_owner(tmp_path: Path) -> None:
    async with (
        FilesystemStore(tmp_path) as store,
        FilesystemStore(tmp_path) as same_place,
        managing(store) as (first, _),
        managing(same_place) as (second, _),
    ):
        await first.start_auto_snapshot(Chat("chat", "one"))
        with pytest.raises(SessionLocked, match=rf"process {os.getpid()} on .* since \d{{4}}-\d\d-\d\dT"):
            await second.start_auto_snapshot(Chat("chat", "intruder"))
        with pytest.raises(SessionLocked):
            await second.snapshot(Chat("chat", "intruder"))
        await first.stop_auto_snapshot("chat")
        await second.start_auto_snapshot(Chat("chat", "heir"))
    assert len(await FilesystemStore(tmp_path).history("chat")) == 2


async def test_live_session_renamed_by_a_script_keeps_its_new_name_after_a_save(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store, managing(store, snapshot_interval=600) as (manager, diary):
        chat = Chat("chat", "one")
        await manager.start_auto_snapshot(chat)
        await diary.wait_for(SnapshotCreated)
        async with FilesystemStore(tmp_path) as elsewhere:
            edited = (await elsewhere.load("chat")).evolve(title="edited")
            await elsewhere.save(edited)
        for seq in (3, 4):
            chat.say("more")
            assert (await manager.snapshot(chat)).seq == seq
        history = await store.history("chat")
    assert [meta.title for meta in history] == ["edited", "edited", "edited", None]
    notices = [event.notices for event in diary.of(SnapshotCreated)]
    assert notices == [(), ("snapshot 2 is by another writer; saved on top of it",), ()]


async def test_live_session_deleted_by_another_process_is_saved_again_from_memory(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store, managing(store, snapshot_interval=600) as (manager, diary):
        chat = Chat("chat", "one")
        await manager.start_auto_snapshot(chat)
        await diary.wait_for(SnapshotCreated)
        async with FilesystemStore(tmp_path) as elsewhere:
            await elsewhere.delete("chat")
        chat.say("two")
        await manager.snapshot(chat)
        async with FilesystemStore(tmp_path) as elsewhere, managing(elsewhere) as (other, _):
            assert len((await elsewhere.load("chat")).messages) == 2
            with pytest.raises(SessionLocked):
                await other.start_auto_snapshot(Chat("chat", "intruder"))
    assert "deleted" in diary.of(SnapshotCreated)[-1].notices[0]


async def test_foreign_write_without_leases_does_not_stop_the_saves() -> None:
    """A store without a live place cannot tell a rename from a second owner: it says so, and keeps both."""
    store = MemoryStore()
    async with managing(store, snapshot_interval=600) as (manager, diary):
        chat = Chat("chat", "one")
        await manager.start_auto_snapshot(chat)
        await diary.wait_for(SnapshotCreated)
        await store.save((await store.load("chat")).evolve(title="edited"))
        chat.say("two")
        ref = await manager.snapshot(chat)
    assert (ref.seq, [meta.title for meta in await store.history("chat")]) == (3, ["edited", "edited", None])


@pytest.mark.requirement("MANAGER-FAULT-SUBSCRIBER")
async def test_raising_or_hanging_subscribers_do_not_affect_saves() -> None:
    async def stuck(_event: Event) -> None:
        await anyio.sleep_forever()

    def broken(_event: Event) -> None:
        raise ZeroDivisionError

    manager, diary = SnapshotManager(MemoryStore(), quick()), Diary()
    for subscriber in (broken, stuck, diary):
        manager.events.subscribe(subscriber)
    with anyio.fail_after(PATIENCE):
        async with manager:
            await manager.start_auto_snapshot(Chat("chat", "one"))
            await diary.wait_for(SnapshotCreated)


@pytest.mark.requirement("MANAGER-FAULT-CLOCK")
async def test_clock_jumps_do_not_affect_the_schedule() -> None:
    clock = FixedClock()
    jumps = [timedelta(days=-400), timedelta(days=4000), timedelta(hours=-1)]
    store, chat = MemoryStore(clock=clock), Chat("chat")
    manager, diary = SnapshotManager(store, quick(), clock=clock), Diary()
    manager.events.subscribe(diary)
    times: list[datetime] = []
    async with manager:
        await manager.start_auto_snapshot(chat)
        for number, jump in enumerate(jumps):
            times.append(clock.advance(jump))
            chat.say(str(number))
            await diary.wait_for(SnapshotCreated, number + 1, where=lambda event: event.at in times)
    assert len((await store.load("chat")).messages) == 3
    assert all(event.duration >= 0 for event in diary.of(SnapshotCreated))


@pytest.mark.requirement("MANAGER-FAULT-FLAKY")
async def test_a_store_that_fails_every_other_call_ends_with_everything_saved() -> None:
    chats = [Chat(f"chat-{number}", "one") for number in range(10)]
    inner = MemoryStore()

    def flaky(call: FaultyCall) -> Fault | None:
        return _REFUSED if call.number % 2 else None

    async with managing(FaultyStore(inner, flaky)) as (manager, diary):
        for chat in chats:
            await manager.start_auto_snapshot(chat)
        for _ in range(3):
            for chat in chats:
                chat.say("more")
                manager.touch(chat.session_id)
            await anyio.wait_all_tasks_blocked()
        for chat in chats:
            with anyio.fail_after(PATIENCE):
                while (await manager.stop_auto_snapshot(chat.session_id)).status != "saved":
                    await manager.start_auto_snapshot(chat)
    assert diary.of(SnapshotFailed)
    for chat in chats:
        assert len((await inner.load(chat.session_id)).messages) == 4


async def test_failing_retention_does_not_fail_the_save() -> None:
    store, chat = FaultyStore(MemoryStore(), every(1, _REFUSED, "history", "forget")), Chat("chat")
    async with managing(store, max_snapshots_per_session=1) as (manager, diary):
        await manager.start_auto_snapshot(chat)
        for number in range(3):
            chat.say(str(number))
            await diary.wait_for(SnapshotFailed, number + 1, where=lambda event: event.operation == "retention")
    assert len((await store.load("chat")).messages) == 3
    assert manager.metrics.snapshot().failed.keys() == {"retention"}


@pytest.mark.requirement("MANAGER-AUTO-CATCH-UP")
async def test_agent_starts_on_a_read_only_disk_and_the_next_good_save_catches_up(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path)
    locked_out = True
    real = store.session_dir

    def session_dir(session_id: str) -> Path:
        if locked_out:
            raise StoreUnavailable("read-only file system")
        return real(session_id)

    store.session_dir = session_dir  # type: ignore[method-assign]
    chat = Chat("chat", "one")
    async with store, managing(store) as (manager, diary):
        await manager.start_auto_snapshot(chat)
        assert not manager.record("chat", {"message": {"role": "user", "content": "two"}})
        chat.say("two")
        await diary.wait_for(SnapshotFailed, 2)
        locked_out = False
        await diary.wait_for(SnapshotCreated)
        assert manager.record("chat", {"message": {"role": "user", "content": "three"}})
        chat.say("three")
    assert len((await FilesystemStore(tmp_path).load("chat")).messages) == 3


async def test_conflict_of_a_live_session_in_a_bucket_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket has no leases: another writer may be a second owner, whose recording must not be saved over."""
    with running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/shared"
        async with ObjectStore(bucket_at(url)) as one, ObjectStore(bucket_at(url)) as two:
            async with managing(one, snapshot_interval=600) as (manager, diary):
                chat = Chat("chat", "hello")
                await manager.start_auto_snapshot(chat)
                await diary.wait_for(SnapshotCreated)
                theirs = (await two.load("chat")).append(make_message("by another node"))
                await two.save(theirs)
                chat.say("by us")
                with pytest.raises(Conflict):
                    await manager.snapshot(chat)
                await manager.stop_auto_snapshot("chat", save=False)
            assert await two.load("chat") == theirs
