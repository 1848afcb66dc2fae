"""Any number of store objects may work on the same place at the same time."""
# ruff: noqa: S101, D102 — a test suite: its names are its docstrings

from __future__ import annotations

import anyio

from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.contract.stage import PATIENCE, Opener, Stage

__all__ = ["Crowds"]

_ROUNDS = 40


class Crowds(Stage):
    """Concurrent readers and writers."""

    async def test_readers_see_whole_snapshots_while_others_save_and_forget(self, opened: Opener) -> None:
        writer, reader = opened(), opened()
        await writer.save(make_snapshot("0"))
        finished = anyio.Event()

        async def write() -> None:
            for number in range(1, _ROUNDS):
                await writer.save(make_snapshot(*(f"{n}" for n in range(number + 1))))
                if number % 3 == 0:
                    await writer.forget("session", RetentionPolicy(keep_last=3))
            finished.set()

        async def read() -> None:
            last = 0
            while not finished.is_set():
                found = await reader.read("session", strict=True)
                texts = [message.text for message in found.snapshot.messages]
                assert texts == [f"{n}" for n in range(found.ref.seq)]
                assert found.ref.seq >= last
                last = found.ref.seq

        async def look() -> None:
            while not finished.is_set():
                seqs = [meta.seq for meta in await reader.history("session")]
                assert seqs == sorted(seqs, reverse=True)
                assert [(m.session_id, m.state) for m in await reader.list()] == [("session", "ok")]
                assert (await reader.check()).ok

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for each in (write, read, look):
                    tasks.start_soon(each)
        assert len((await opened().load("session", strict=True)).messages) == _ROUNDS

    async def test_many_sessions_come_and_go_while_others_list_them(self, opened: Opener) -> None:
        stores = [opened() for _ in range(3)]
        finished: list[int] = []

        async def live(store: SnapshotStore, number: int) -> None:
            for turn in range(_ROUNDS // 2):
                session_id = f"{number}-{turn}"
                await store.save(make_snapshot("a", session_id=session_id))
                if turn % 2:
                    await store.delete(session_id)
            finished.append(number)

        async def watch(store: SnapshotStore) -> None:
            while len(finished) < len(stores):
                assert {meta.state for meta in await store.list()} <= {"ok"}
                assert (await store.check()).ok
                await store.trash()

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for number, store in enumerate(stores):
                    tasks.start_soon(live, store, number)
                tasks.start_soon(watch, opened())
        left = {f"{number}-{turn}" for number in range(3) for turn in range(0, _ROUNDS // 2, 2)}
        assert {meta.session_id for meta in await opened().list()} == left
        assert len(await opened().trash()) == 3 * _ROUNDS // 4

    async def test_one_store_object_serves_many_sessions_at_once(self, opened: Opener) -> None:
        store = opened()

        async def live(session_id: str) -> None:
            for length in (1, 2, 3):
                await store.save(make_snapshot(*"abc"[:length], session_id=session_id))
                assert len((await store.load(session_id)).messages) == length

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for number in range(_ROUNDS):
                    tasks.start_soon(live, f"session-{number}")
        assert [(meta.seq, meta.messages) for meta in await opened().list()] == [(3, 3)] * _ROUNDS
