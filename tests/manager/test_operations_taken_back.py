"""Forgetting and taking back, without a command line, on every event loop."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import (
    FilesystemStore,
    InvalidInput,
    MemoryStore,
    RetentionPolicy,
    SessionLocked,
    SnapshotMeta,
    SnapshotNotFound,
)
from snapshot_plugin.live.lease import Lease, Owner, lease_of
from snapshot_plugin.manager.forgetting import (
    drop_snapshots,
    forget_session,
    plan_single,
    plan_snapshots,
    surplus_sessions,
)
from snapshot_plugin.model.ids import companions
from snapshot_plugin.operations.undo import Operation, OperationLog, is_purged, record_undo, take_back
from snapshot_plugin.testing import FaultyStore, FixedClock, make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio
NOW = FixedClock()()


async def grown(store: MemoryStore | FilesystemStore, count: int) -> None:
    for number in range(count):
        await store.save(make_snapshot(*(str(n) for n in range(number + 1))))


async def numbers(store: MemoryStore | FilesystemStore) -> list[int]:
    return sorted(meta.seq for meta in await store.history("session"))


def done(*steps: dict[str, Any], kind: str = "forget") -> Operation:
    return Operation(id="1", at=NOW, kind=kind, summary="a thing", steps=steps)


async def test_plan_is_executed_undone_and_redone() -> None:
    store = MemoryStore()
    await grown(store, 6)
    plan = await plan_snapshots(store, "session", RetentionPolicy(keep_last=2))
    assert plan.dropped == (1, 2, 3, 4)

    step = await drop_snapshots(store, plan)
    assert await numbers(store) == [5, 6]
    [back] = await take_back(store, done(step))
    assert await numbers(store) == [1, 2, 3, 4, 5, 6]
    assert back.inverse is not None
    [again] = await take_back(store, done(dict(back.inverse)))
    assert again.is_done
    assert await numbers(store) == [5, 6]


async def test_snapshots_named_separately_make_one_plan() -> None:
    store = MemoryStore()
    await grown(store, 4)
    plan = await plan_single(store, "session", 3, after=await plan_single(store, "session", 1))

    await drop_snapshots(store, plan)

    assert await numbers(store) == [2, 4]
    with pytest.raises(InvalidInput):
        await plan_single(store, "session", 4)
    with pytest.raises(SnapshotNotFound):
        await plan_single(store, "session", 3)


async def test_change_between_plan_and_execution_is_detected() -> None:
    store = MemoryStore()
    await grown(store, 4)
    plan = await plan_snapshots(store, "session", RetentionPolicy(keep_last=1))
    await store.forget("session", RetentionPolicy(keep_last=2))

    with pytest.raises(InvalidInput):
        await drop_snapshots(store, plan)

    assert await numbers(store) == [3, 4]
    assert list(await store.trash()) == []


async def test_store_without_copies_drops_nothing() -> None:
    inner = MemoryStore()
    await grown(inner, 3)
    store = FaultyStore(inner)
    plan = await plan_snapshots(store, "session", RetentionPolicy(keep_last=1))

    with pytest.raises(InvalidInput):
        await drop_snapshots(store, plan)
    [restored] = await take_back(store, done({"do": "restore", "session_id": "session", "token": "x"}))

    assert restored.code == "invalid_input"
    assert await numbers(inner) == [1, 2, 3]


async def test_crashed_session_is_still_marked_as_crashed_after_undo(tmp_path: Path) -> None:
    dead = Owner(pid=1, host="gone", since=NOW)
    async with FilesystemStore(tmp_path, background=False) as store:
        await grown(store, 1)
        Lease.acquire(store.session_dir("session"), dead)._leave_to_parent()

        trashed = await forget_session(store, "session")
        [back] = await take_back(store, done({"do": "undelete", "token": trashed.token}))

        assert back.is_done
        assert lease_of(store.session_dir("session")).died == dead


async def test_live_session_is_neither_forgotten_nor_thinned(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        await grown(store, 3)
        plan = await plan_snapshots(store, "session", RetentionPolicy(keep_last=1))
        lease = Lease.acquire(store.session_dir("session"), Owner.this_process(since=NOW))

        for wrong in (forget_session(store, "session"), drop_snapshots(store, plan)):
            with pytest.raises(SessionLocked):
                await wrong
        lease.release()
        assert await numbers(store) == [1, 2, 3]


async def test_undo_does_every_possible_step_and_keeps_the_rest_for_later(tmp_path: Path) -> None:
    store, log = MemoryStore(), OperationLog(tmp_path / "log")
    await store.save(make_snapshot("a", session_id="one"))
    first = await store.delete("one")
    steps = [{"do": "undelete", "token": "gone"}, {"do": "undelete", "token": first.token}]
    operation = await log.record(kind="forget", summary="two", steps=steps)
    assert is_purged(operation, [first.token])
    assert not is_purged(operation, [first.token, "gone"])

    taken = await take_back(store, operation)
    undo = await record_undo(log, operation, taken)

    assert [each.is_done for each in taken] == [False, True]
    assert [dict(step) for step in undo.steps] == [{"do": "delete", "session_id": "one", "seq": 1}]
    known = {each.id: each for each in await log.read()}
    assert known[operation.id].undone
    rest = [each for each in known.values() if each.id not in (operation.id, undo.id)]
    assert [[dict(step) for step in each.steps] for each in rest] == [[steps[0]]]


async def test_redo_repeats_several_steps_in_their_original_order(tmp_path: Path) -> None:
    store, log = MemoryStore(), OperationLog(tmp_path / "log")
    await grown(store, 2)
    steps = [
        {"do": "label", "session_id": "session", "title": "a"},
        {"do": "label", "session_id": "session", "title": "b"},
    ]
    operation = await log.record(kind="rename", summary="", steps=steps)

    undo = await record_undo(log, operation, await take_back(store, operation))
    assert (await store.load("session")).title == "b"
    await take_back(store, undo)

    assert (await store.load("session")).title is None


def meta(session_id: str, **more: Any) -> SnapshotMeta:
    return SnapshotMeta(session_id=session_id, seq=1, saved_at=NOW, **more)


def test_session_limit_selects_the_oldest_unpinned_intact_sessions() -> None:
    metas = [
        meta("new"),
        meta("pinned", pinned=True),
        meta("broken", state="damaged"),
        meta("old"),
        meta("old+memory"),
        meta("old+subgraphs"),
        meta("state.of-an-app+subgraphs"),
        meta("oldest"),
    ]

    assert [each.session_id for each in surplus_sessions(metas, 1)] == ["old", "oldest"]
    assert surplus_sessions(metas, 3) == ()
    names = {each.session_id for each in metas}
    assert companions("old", names) == ("old+memory", "old+subgraphs")
    assert companions("new", names) == ()
    with pytest.raises(InvalidInput):
        surplus_sessions(metas, 0)


async def test_within_uses_the_stores_clock() -> None:
    clock = FixedClock()
    store = MemoryStore(clock=clock)
    for number in range(4):
        await store.save(make_snapshot(str(number)))
        clock.advance(timedelta(days=1))

    plan = await plan_snapshots(store, "session", RetentionPolicy(keep_within=timedelta(days=2)))

    assert plan.dropped == (1, 2)
