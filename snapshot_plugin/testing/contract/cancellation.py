"""**Cancellation**: a cancelled save is complete or has no effect, and the store object stays usable."""
# ruff: noqa: S101, D102, PLR2004 — a test suite: its names are its docstrings

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel

from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.contract.stage import PATIENCE, Opener, Stage, on_top

__all__ = ["Cancellation"]

_MOMENTS = (*range(12), 20, 40, 80, 160, 320, 640)
"""After how many iterations of the event loop to cancel: from before the first to long after the last."""


async def _cancelled(work: Callable[[], Awaitable[object]], moment: int) -> None:
    """Run *work* and cancel it at *moment*, unless it finishes first."""

    async def run() -> None:
        await work()
        finished.set()

    finished = anyio.Event()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            for _ in range(moment):
                await anyio.lowlevel.checkpoint()
                if finished.is_set():
                    return
            tasks.cancel_scope.cancel()


class Cancellation(Stage):
    """Cancel at any await, check the stored state, then continue."""

    async def test_a_cancelled_save_leaves_the_old_snapshot_or_the_new_one(self, opened: Opener) -> None:
        store = opened()
        old = make_snapshot("old", *"abc")
        await store.save(old)
        for moment in _MOMENTS:
            new = make_snapshot(f"new {moment}", *"abc"[: moment % 4], title=f"{moment}")
            await _cancelled(lambda new=new: store.save(new), moment)  # type: ignore[misc]

            found = await opened().load("session", strict=True)
            assert found in (old, new)

            old = make_snapshot(f"after {moment}")
            assert (await store.save(old)).written
            assert await opened().load("session", strict=True) == old
        assert (await opened().check()).ok

    async def test_a_cancelled_first_save_leaves_a_session_or_none(self, opened: Opener) -> None:
        store = opened()
        for moment in _MOMENTS:
            snapshot = make_snapshot("first", session_id=f"session-{moment}")
            await _cancelled(lambda snapshot=snapshot: store.save(snapshot), moment)  # type: ignore[misc]

            try:
                assert await opened().load(snapshot.session_id) == snapshot
            except SnapshotNotFound:
                assert snapshot.session_id not in [meta.session_id for meta in await opened().list()]
            assert (await store.save(snapshot)).seq == 1

    async def test_a_save_cancelled_while_it_waits_blocks_no_other_save(self, opened: Opener) -> None:
        store = opened()
        done: list[str] = []

        async def save(name: str, scope: anyio.CancelScope, begun: anyio.Event) -> None:
            begun.set()
            with scope:
                await store.save(make_snapshot(name))
                done.append(name)

        with anyio.fail_after(PATIENCE):
            for _ in range(5):
                scopes = {name: anyio.CancelScope() for name in ("first", "second", "third")}
                async with anyio.create_task_group() as tasks:
                    for name, scope in scopes.items():
                        begun = anyio.Event()
                        tasks.start_soon(save, name, scope, begun)
                        await begun.wait()
                    scopes["second"].cancel()
                assert {"first", "third"} <= set(done)
                assert await opened().load("session") == make_snapshot("third")
                done.clear()

    async def test_a_cancelled_forget_leaves_the_session_whole(self, opened: Opener) -> None:
        store = opened()
        for moment in _MOMENTS:
            session_id = f"session-{moment}"
            for length in (1, 2, 3):
                await store.save(make_snapshot(*"abc"[:length], session_id=session_id))

            policy = RetentionPolicy(keep_last=1)
            await _cancelled(lambda at=session_id, to=policy: store.forget(at, to), moment)  # type: ignore[misc]

            seqs = [meta.seq for meta in await opened().history(session_id)]
            assert seqs in ([3, 2, 1], [3])
            whole = make_snapshot("a", "b", "c", session_id=session_id)
            assert await opened().load(session_id, strict=True) == whole
            await store.forget(session_id, policy)
            assert (await store.save(make_snapshot("a", "b", "c", "d", session_id=session_id))).seq == 4

    async def test_a_cancelled_delete_leaves_the_session_here_or_in_the_trash(self, opened: Opener) -> None:
        store = opened()
        for moment in _MOMENTS:
            session_id = f"session-{moment}"
            await store.save(make_snapshot("a", session_id=session_id))

            await _cancelled(lambda at=session_id: store.delete(at), moment)  # type: ignore[misc]

            listed = [meta for meta in await opened().list() if meta.session_id == session_id]
            trashed = [entry for entry in await opened().trash() if entry.session_id == session_id]
            assert len(listed) + len(trashed) == 1
            for entry in trashed:
                await store.undelete(entry.token)
            longer = await on_top(store, make_snapshot("a", "b", session_id=session_id))
            assert (await store.save(longer)).seq == 2
