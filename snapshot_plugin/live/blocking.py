"""A store as plain calls for worker threads, also one that has only asynchronous methods.

Live sessions are synchronous and call `SnapshotStore.sync`. Someone's own store may lack it, or be one of ours with
another ``async def save``: its methods are then called in the event loop from which the thread was started. This is
the only place where a store is turned synchronous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import anyio
import anyio.abc
import anyio.lowlevel

from snapshot_plugin.errors import StoreUnavailable
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.store.hop import in_thread
from snapshot_plugin.store.sync import SyncStore

__all__ = ["blocking_store", "in_thread_with"]

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, Any]]


def blocking_store(store: SnapshotStore) -> SyncStore:
    """*store* as plain calls. Call those in a thread of `in_thread_with`."""
    if isinstance(store, LogStore):
        kind = type(store)
        changed = kind.save is not LogStore.save or kind.read is not LogStore.read
        is_whole = kind.sync is not LogStore.sync or not changed
    else:
        is_whole = hasattr(store, "sync")
    return store.sync if is_whole else cast("SyncStore", _StoreInLoop(store))


async def in_thread_with(
    store: SyncStore, work: Callable[..., T], *args: Any, lost: Callable[[T], object] | None = None
) -> T:
    """As `in_thread`, for *work* that calls *store*, which is one of `blocking_store`."""
    if not isinstance(store, _StoreInLoop):
        return await in_thread(work, *args, lost=lost)
    outcome: T | None = None
    error: BaseException | None = None
    async with anyio.create_task_group() as tasks:  # in the caller's scope, so that its cancellation ends the calls
        token = _loop.set(_Loop(tasks))
        try:
            outcome = await in_thread(work, *args, lost=lost)
        except BaseException as raised:  # noqa: BLE001 — raised below, not in a group
            error = raised
        finally:
            _loop.reset(token)
    if error is not None:
        await anyio.lowlevel.checkpoint_if_cancelled()  # which may be why the call failed
        raise error
    return cast("T", outcome)


class _Loop:
    """The event loop that waits for a thread; the thread has it call async functions."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._soon: Callable[[Callable[[], None]], object]
        try:
            self._soon = asyncio.get_running_loop().call_soon_threadsafe
        except RuntimeError:
            import trio.lowlevel  # noqa: PLC0415 — only where trio runs

            self._soon = trio.lowlevel.current_trio_token().run_sync_soon

    def call(self, work: Work) -> Any:
        """In the thread: have *work* called in the event loop, and wait for its end."""
        ended: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        gone = StoreUnavailable("the call of the store was cancelled")

        async def run() -> None:
            outcome: tuple[Any, BaseException | None] = (None, gone)
            try:
                outcome = (await work(), None)
            except Exception as error:  # noqa: BLE001 — raised in the thread
                outcome = (None, error)
            finally:
                ended.put(outcome)

        def start() -> None:
            try:
                self._tasks.start_soon(run)
            except BaseException:  # noqa: BLE001 — the caller does not wait any more
                ended.put((None, gone))

        self._soon(start)
        result, error = ended.get()
        if error is not None:
            raise error
        return result


_loop: ContextVar[_Loop | None] = ContextVar("loop", default=None)


class _StoreInLoop:
    """What live sessions need of a store that has only asynchronous methods."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store

    def save(self, *args: Any, **options: Any) -> Any:
        return self._called(partial(self._store.save, *args, **options))

    def read(self, *args: Any, **options: Any) -> Any:
        return self._called(partial(self._store.read, *args, **options))

    def _called(self, work: Work) -> Any:
        loop = _loop.get()
        if loop is None:
            raise StoreUnavailable("this store can only be called from an event loop", hint="give it `sync`")
        return loop.call(work)
