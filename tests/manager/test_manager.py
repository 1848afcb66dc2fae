"""The manager's everyday work: saving, restoring, listing, forking, opening and closing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from snapshot_plugin import (
    FilesystemStore,
    InvalidInput,
    InvalidSessionId,
    MemoryStore,
    SessionLocked,
    SnapshotManager,
    SnapshotNotFound,
)
from snapshot_plugin.manager.events import (
    SessionRestored,
    SnapshotCreated,
    SnapshotFailed,
    SnapshotSkipped,
)
from snapshot_plugin.manager.ports import LocalPlace, Snapshottable, adapt
from snapshot_plugin.model import Message, SessionSnapshot
from snapshot_plugin.testing import FixedClock, make_message, make_snapshot
from tests.manager.sessions import PATIENCE, Chat, Diary, managing, quick

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "disk"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemoryStore | FilesystemStore]:
    made = MemoryStore() if request.param == "memory" else FilesystemStore(tmp_path / "store")
    async with made as opened:
        yield opened


@pytest.mark.requirement("ORBIT-MANAGER-SNAPSHOT", "ORBIT-MANAGER-RESTORE", "ORBIT-EVENT-CREATED")
async def test_session_round_trips_through_save_and_restore(store: MemoryStore) -> None:
    async with managing(store) as (manager, diary):
        ref = await manager.snapshot(Chat("chat", "one", "two"))
        found = await manager.restore("chat")
    assert (ref.seq, ref.written) == (1, True)
    assert [message.text for message in found.snapshot.messages] == ["one", "two"]
    created, restored = diary.of(SnapshotCreated)[0], diary.of(SessionRestored)[0]
    assert (created.session_id, created.size_bytes) == ("chat", ref.size_bytes)
    assert (created.seq, created.trigger) == (1, "manual")
    assert (restored.seq, restored.grade, restored.skipped) == (1, "snapshot", 0)
    assert min(created.duration, restored.duration) >= 0


@pytest.mark.requirement("MANAGER-AUTO-UNCHANGED", "MANAGER-EVENT-SKIPPED")
async def test_an_unchanged_session_is_not_written_again(store: MemoryStore) -> None:
    chat = Chat("chat", "one")
    async with managing(store, snapshot_interval=60, event_debounce=60) as (manager, diary):
        await manager.start_auto_snapshot(chat)
        first = await manager.snapshot(chat)
        again = await manager.snapshot(chat)
        chat.state = chat.state.evolve(updated_at=datetime(2027, 1, 1, tzinfo=UTC))
        touched = await manager.snapshot(chat)
    assert (first.seq, again.seq, touched.seq) == (1, 1, 1)
    assert len(diary.of(SnapshotCreated)) == 1
    assert {event.reason for event in diary.of(SnapshotSkipped)} == {"unchanged"}


async def test_a_tag_is_saved_even_if_nothing_changed(store: MemoryStore) -> None:
    chat = Chat()
    async with managing(store) as (manager, _):
        await manager.snapshot(chat)
        tagged = await manager.snapshot(chat, tags=["release"])
        history = await store.history("chat")
    assert (tagged.seq, tagged.written) == (2, True)
    assert history[0].snapshot_tags == ("release",)


@pytest.mark.requirement("MANAGER-LIST")
async def test_single_saves_need_no_open_manager(store: MemoryStore) -> None:
    manager = SnapshotManager(store)
    await manager.snapshot(Chat("chat", "one"))
    assert [meta.session_id for meta in await manager.list()] == ["chat"]
    with pytest.raises(InvalidInput):
        await manager.start_auto_snapshot(Chat("chat"))


@pytest.mark.requirement("ORBIT-ACP-LOAD-ERROR")
async def test_restoring_an_unknown_session_fails_and_leaves_no_trace(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        manager, diary = SnapshotManager(store), Diary()
        manager.events.subscribe(diary)
        with pytest.raises(SnapshotNotFound):
            await manager.restore("nobody")
        with pytest.raises(InvalidSessionId):
            await manager.restore("..")
    assert list((tmp_path / "sessions").iterdir()) == []
    assert diary.of(SnapshotFailed) == []


async def test_an_older_snapshot_can_be_restored_by_its_number(store: MemoryStore) -> None:
    chat = Chat("chat", "one")
    async with managing(store) as (manager, _):
        await manager.snapshot(chat)
        chat.say("two")
        await manager.snapshot(chat)
        found = await manager.restore("chat", at=1)
    assert len(found.snapshot.messages) == 1


@pytest.mark.requirement("ORBIT-EVENT-RESTORED")
async def test_age_of_a_restored_session_is_reported_and_never_negative(store: MemoryStore) -> None:
    clock = FixedClock()
    saved_at = clock()
    manager, diary = SnapshotManager(store, clock=clock), Diary()
    manager.events.subscribe(diary)
    await store.save(make_snapshot("one", session_id="chat", updated_at=saved_at))
    clock.advance(timedelta(minutes=4))
    await manager.restore("chat")
    clock.advance(timedelta(days=-9))
    await manager.restore("chat")
    told = [(event.session_id, event.age) for event in diary.of(SessionRestored)]
    assert told == [("chat", 240.0), ("chat", 0.0)]


@pytest.mark.requirement("MANAGER-FORK", "TERMINAL-BRANCH-ANYWHERE")
async def test_fork_is_a_separate_session_with_the_messages_so_far(store: MemoryStore) -> None:
    chat = Chat("chat", "one", "two")
    async with managing(store, snapshot_interval=60, event_debounce=60) as (manager, _):
        await manager.start_auto_snapshot(chat)
        chat.say("three")
        whole = await manager.fork("chat")
        part = await manager.fork("chat", messages=1, as_id="branch")
        older = await manager.fork("chat", seq=1)
        with pytest.deprecated_call(match="messages"):
            assert len((await manager.fork("chat", at=2)).messages) == 2
    assert [len(fork.messages) for fork in (whole, part, older)] == [3, 1, 3]
    assert part.session_id == "branch"
    assert part.parent is not None
    assert (part.parent.session_id, part.parent.seq, part.parent.message_index) == ("chat", 1, 1)
    assert (await store.load("branch")).messages == part.messages
    assert len({whole.session_id, older.session_id, "chat"}) == 3


async def test_a_fork_of_a_recorded_session_begins_with_an_empty_spool(tmp_path: Path) -> None:
    chat = Chat("chat", "one")
    async with FilesystemStore(tmp_path) as store, managing(store) as (manager, _):
        await manager.start_auto_snapshot(chat)
        assert manager.record("chat", {"message": {"role": "user", "content": "two"}})
        fork = await manager.fork("chat")
        parent = await store.load("chat")
    assert parent.metadata["spool"] == {"upto": 1}
    assert "spool" not in fork.metadata


async def test_a_session_cannot_be_forked_onto_one_that_exists(store: MemoryStore) -> None:
    async with managing(store) as (manager, _):
        await manager.snapshot(Chat("chat"))
        await manager.snapshot(Chat("other"))
        with pytest.raises(Exception, match="other"):
            await manager.fork("chat", as_id="other")


@dataclass
class Notebook:
    session_id: str
    lines: list[str] = field(default_factory=list)


class Ledger(BaseModel):
    name: str
    lines: list[str] = []


def _of_notebook(book: Notebook) -> SessionSnapshot:
    messages = tuple(Message(role="user", content=line) for line in book.lines)
    return make_snapshot(session_id=book.session_id, messages=messages)


async def _of_ledger(ledger: Ledger) -> SessionSnapshot:
    await anyio.lowlevel.checkpoint()
    messages = tuple(Message(role="user", content=line) for line in ledger.lines)
    return make_snapshot(session_id=ledger.name, messages=messages)


@pytest.mark.requirement("MANAGER-ADAPT", "ORBIT-ACP-SNAPSHOTTABLE")
async def test_a_dataclass_or_a_pydantic_session_needs_one_function(store: MemoryStore) -> None:
    book, ledger = Notebook("book", ["a"]), Ledger(name="ledger", lines=["b", "c"])
    async with managing(store) as (manager, _):
        await manager.start_auto_snapshot(adapt(book, _of_notebook))
        await manager.start_auto_snapshot(adapt(ledger, _of_ledger, session_id=ledger.name))
        book.lines.append("d")
        await manager.snapshot(adapt(book, _of_notebook))
    assert len((await store.load("book")).messages) == 2
    assert len((await store.load("ledger")).messages) == 2


def test_an_adapted_session_needs_an_id_from_somewhere() -> None:
    with pytest.raises(InvalidInput):
        adapt(Ledger(name="x"), _of_ledger)
    assert isinstance(adapt(Notebook("x"), _of_notebook), Snapshottable)


def test_only_a_store_on_disk_has_a_local_place(tmp_path: Path) -> None:
    assert isinstance(FilesystemStore(tmp_path), LocalPlace)
    assert not isinstance(MemoryStore(), LocalPlace)
    assert SnapshotManager(FilesystemStore(tmp_path)).has_spool
    assert not SnapshotManager(MemoryStore()).has_spool


@pytest.mark.requirement("MANAGER-AUTO-EXIT", "ORBIT-SUCCESS-SHUTDOWN", "ORBIT-USE-NO-LOSS")
async def test_closing_saves_every_live_session_and_reports_it(store: MemoryStore) -> None:
    chats = [Chat(f"chat-{number}", "one") for number in range(5)]
    async with managing(store, snapshot_interval=60, event_debounce=60) as (manager, diary):
        for chat in chats:
            await manager.start_auto_snapshot(chat)
        outcomes = await manager.close()
        again = await manager.close()
        with pytest.raises(InvalidInput):
            await manager.start_auto_snapshot(Chat("late"))
    assert [(outcome.session_id, outcome.status, outcome.seq) for outcome in outcomes] == [
        (f"chat-{number}", "saved", 1) for number in range(5)
    ]
    assert again == []
    assert {event.trigger for event in diary.of(SnapshotCreated)} == {"exit"}


@pytest.mark.requirement("ORBIT-CONFIG-EXIT")
async def test_without_snapshot_on_exit_nothing_is_saved_at_the_end(store: MemoryStore) -> None:
    settings = {"snapshot_on_exit": False, "snapshot_interval": 60, "event_debounce": 60}
    async with managing(store, **settings) as (manager, _):
        await manager.start_auto_snapshot(Chat("a"))
        await manager.start_auto_snapshot(Chat("b"))
        assert (await manager.stop_auto_snapshot("a")).status == "not_asked"
        assert [outcome.status for outcome in await manager.close()] == ["not_asked"]
    assert await store.list() == []


async def test_error_in_the_body_is_raised_unchanged_after_everything_was_saved(store: MemoryStore) -> None:
    async def crash() -> None:
        async with managing(store, snapshot_interval=60, event_debounce=60) as (manager, _):
            await manager.start_auto_snapshot(Chat("chat", "one"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await crash()
    assert len((await store.load("chat")).messages) == 1


async def test_a_manager_is_opened_once() -> None:
    async with SnapshotManager(MemoryStore(), quick()) as manager:
        with pytest.raises(InvalidInput):
            await manager.__aenter__()


@pytest.mark.requirement("MANAGER-RESUME-ATTACH", "ORBIT-CONFIG-STARTS", "ORBIT-CONFIG-STOPS")
async def test_hooks_attach_a_started_session_and_save_a_stopped_one(store: MemoryStore) -> None:
    chat = Chat("chat", "one")
    async with managing(store, snapshot_interval=60, event_debounce=60) as (manager, _):
        assert await manager.session_started(chat)
        chat.say("two")
        outcome = await manager.session_stopped("chat")
        assert (outcome.status, outcome.seq) == ("saved", 1)
        assert len((await store.load("chat")).messages) == 2
        assert (await manager.session_stopped("chat")).status == "not_live"


@pytest.mark.requirement("ORBIT-CONFIG-STARTS", "ORBIT-CONFIG-ENABLE")
async def test_hooks_do_nothing_and_warn_while_persistence_is_off(store: MemoryStore) -> None:
    async with managing(store, enable_persistence=False) as (manager, diary):
        assert not await manager.session_started(Chat("chat"))
        assert (await manager.session_stopped("chat")).status == "not_live"
    assert [event.reason for event in diary.of(SnapshotSkipped)] == ["persistence_off"]
    assert await store.list() == []


async def test_metrics_match_the_events(store: MemoryStore) -> None:
    async with managing(store) as (manager, _):
        await manager.snapshot(Chat("chat", "one"))
        await manager.restore("chat")
    numbers = manager.metrics.snapshot()
    assert (numbers.saved, numbers.restored) == (1, {"snapshot": 1})
    assert numbers.save_size_bytes.total > 0


async def test_another_object_under_a_live_id_is_refused(store: MemoryStore) -> None:
    async with managing(store) as (manager, _):
        await manager.start_auto_snapshot(Chat("chat"))
        with pytest.raises(SessionLocked):
            await manager.start_auto_snapshot(Chat("chat"))
        with pytest.raises(SessionLocked):
            await manager.snapshot(Chat("chat"))


async def test_single_saves_of_one_session_at_the_same_time_all_succeed(store: MemoryStore) -> None:
    chat = Chat("chat", "one")
    manager = SnapshotManager(store)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(manager.snapshot, chat)
    assert (await store.read("chat")).ref.seq == 1


@pytest.mark.requirement("MANAGER-AUTO-RETENTION", "ORBIT-CONFIG-MAX", "ORBIT-SECURITY-RETENTION")
async def test_history_is_kept_as_configured_and_tagged_snapshots_stay(store: MemoryStore) -> None:
    chat = Chat("chat")
    async with managing(store, max_snapshots_per_session=4) as (manager, diary):
        await manager.snapshot(chat, tags=["first"])
        await manager.start_auto_snapshot(chat)
        for number in range(12):
            chat.say(str(number))
            await diary.wait_for(SnapshotCreated, number + 2)
    kept = [meta.seq for meta in await store.history("chat")]
    assert kept[0] == 13
    assert kept[-1] == 1
    assert 5 <= len(kept) <= 7
    assert [make_message(str(n)).text for n in range(12)] == [m.text for m in (await store.load("chat")).messages]


async def test_wrong_arguments_are_refused_before_anything_is_saved(tmp_path: Path) -> None:
    for place in (b"store", 7, ["x"], "a\0b", ""):
        with pytest.raises(InvalidInput):
            SnapshotManager(place)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        SnapshotManager(tmp_path, {"snapshot_interval": 5})  # type: ignore[arg-type]
    async with managing(MemoryStore()) as (manager, _):
        await manager.snapshot(Chat("saved", "one"))
        await manager.start_auto_snapshot(Chat("live", "one"))
        chat, one = Chat("chat", "one"), cast("Any", "1")
        calls: list[Callable[[], Any]] = [
            lambda: manager.snapshot(chat, tags="one"),
            lambda: manager.snapshot(chat, tags=cast("Any", 1)),
            lambda: manager.snapshot(one),
            lambda: manager.start_auto_snapshot(one),
            lambda: manager.session_started(one),
            lambda: manager.restore("saved", at=one),
            lambda: manager.fork("saved", messages=one),
        ]
        for call in calls:
            with pytest.raises(InvalidInput):
                await call()
        odd: Any
        for odd in (["live"], {"live": 1}, 7, None, b"live"):
            ids: list[Callable[[], Any]] = [
                partial(manager.touch, odd),
                partial(manager.record, odd, {}),
                partial(manager.set_current_task, odd, "task"),
            ]
            for plain in ids:
                with pytest.raises(InvalidInput):
                    plain()
            for wait in (manager.stop_auto_snapshot, manager.session_stopped, manager.fork, manager.snapshot_all):
                with pytest.raises(InvalidInput):
                    await wait(odd)
            with pytest.raises(InvalidInput):
                await SnapshotManager(MemoryStore()).session_started(odd)
        assert manager.live == ("live",)
        for task in (b"task", 7, ["task"], object()):
            with pytest.raises(InvalidInput):
                manager.set_current_task("live", task)  # type: ignore[arg-type]
        assert not {"chat", "1"} & {meta.session_id for meta in await manager.list()}
