"""The journals of an agent, kept in the agent's own event loop; what may take long happens in worker threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.from_thread import BlockingPortal

from snapshot_plugin.adapters.acp.journal import PROVIDER, Journal, Journals, recover_all
from snapshot_plugin.acp.events import Entry
from snapshot_plugin.errors import InvalidInput, SessionLocked, SnapshotError
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.manager.opening import open_place
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["Desk", "Place"]

Place = SnapshotManager | SnapshotStore | str | Path | None
"""Where sessions are kept: a manager's store, a store, a path, or (None) the user's own store."""

_THREADS = 8
_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")
log = logging.getLogger("snapshot_plugin.acp")


class Desk:
    """Journals of one connection. The store is opened when it is first needed; what was left there is recovered.

    Raises:
        InvalidInput: *place* is a store that has no room for what streams by.
    """

    def __init__(self, place: Place) -> None:
        self._place = _checked(place)
        self._opened: asyncio.Future[Journals] | None = None
        self._done = asyncio.Event()
        self._host: asyncio.Task[None] | None = None
        # Of our own: work that waits for the store must not take the threads the store needs.
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._open: dict[str, Journal] = {}

    def journal(self, session_id: str) -> Journal | None:
        """The journal of a session that is recorded on this connection."""
        return self._open.get(session_id)

    async def write(self, journal: Journal | None, entry: Entry | None, *, checkpoint: bool = False) -> None:
        """Write an entry down before what it is about goes on, which it does in any case.

        Only what has to reach the disk leaves the loop.
        """
        if journal is None or entry is None:
            return
        try:
            if entry.durable or checkpoint:
                await self._in_thread(_record, journal, entry, checkpoint)
            else:
                journal.record(entry.event)
        except Exception:
            log.exception("session %s: something was not recorded", journal.session_id)

    async def begin(self, authors_id: str, first: Mapping[str, Any]) -> Journal | None:
        """Record a new session under the author's id, or under a new one if that is taken; durable on return.

        None, and said so, if it cannot be recorded: the session goes on all the same.
        """
        try:
            journals = await self._journals()
            return await self._in_thread(self._begin, journals, authors_id, first)
        except Exception as error:  # noqa: BLE001 — the session matters more than its record
            log.warning("session %s is NOT recorded: %s", authors_id, error)
            return None

    def _begin(self, journals: Journals, authors_id: str, first: Mapping[str, Any]) -> Journal:
        now = datetime.now(UTC)
        blank = SessionSnapshot(session_id=new_id(), created_at=now, updated_at=now, provider_type=PROVIDER)
        try:
            if not journals.has(authors_id):
                return journals.begin(blank.evolve(session_id=authors_id), first)
        except (SessionLocked, InvalidInput):
            pass  # another process has just made one of that name, or it is no name for a session
        return journals.begin(blank, first)

    async def run(self, work: Callable[[Journals, Unpack[_Args]], _T], *arguments: *_Args) -> _T:
        """Do something with the journals that may take a while."""
        return await self._in_thread(work, await self._journals(), *arguments)

    async def close(self) -> None:
        """Save every session for the last time and let go of all of them."""
        if self._host is None:
            return
        try:
            await self.run(Journals.finish_all)
        except Exception as error:  # noqa: BLE001 — the connection ends in any case
            log.warning("not everything could be saved: %s", error)
        self._done.set()
        await self._host

    async def _in_thread(self, work: Callable[[Unpack[_Args]], _T], *arguments: *_Args) -> _T:
        return await anyio.to_thread.run_sync(work, *arguments, limiter=self._threads)

    async def _journals(self) -> Journals:
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._host = asyncio.create_task(self._keep_open(self._opened), name="snapshot_plugin.journals")
        return await asyncio.shield(self._opened)

    async def _keep_open(self, opened: asyncio.Future[Journals]) -> None:
        """The store, and the task group that saves in the background, from the first use to `close`."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                store, is_ours = open_place(self._place)
                assert isinstance(store, FilesystemStore)  # noqa: S101 — stores were checked, and a path is one
                if is_ours:
                    stack.push_async_callback(store.aclose)
                await _recover(store)
                portal = await stack.enter_async_context(BlockingPortal())
                tasks = await stack.enter_async_context(anyio.create_task_group())
                journals = Journals(store, cast("BlockingPortal", _Portal(portal, tasks)))
            except Exception as error:  # noqa: BLE001 — whoever waits is told, and goes on
                opened.set_exception(error)
                return
            self._open = journals.open
            opened.set_result(journals)
            await self._done.wait()
            tasks.cancel_scope.cancel()
            await portal.stop(cancel_remaining=True)


class _Portal:
    """A way into the loop that those who are in it already may take as well: updates are recorded there."""

    def __init__(self, portal: BlockingPortal, tasks: TaskGroup) -> None:
        self._portal, self._tasks, self._loops_thread = portal, tasks, threading.get_ident()
        self.call = portal.call

    def start_task_soon(
        self, work: Callable[[Unpack[_Args]], Coroutine[Any, Any, Any]], *arguments: *_Args
    ) -> None:
        if threading.get_ident() == self._loops_thread:
            self._tasks.start_soon(work, *arguments)
        else:
            self._portal.start_task_soon(work, *arguments)


def _record(journal: Journal, entry: Entry, checkpoint: bool) -> None:
    journal.record(entry.event, durable=entry.durable)
    if checkpoint:
        journal.checkpoint()


async def _recover(store: FilesystemStore) -> None:
    """What killed processes left behind. A failure is said; what can be recovered another time stays."""
    try:
        for line in await recover_all(store):
            log.warning("%s", line)
    except (SnapshotError, OSError) as error:
        log.warning("sessions that were killed could not be looked for: %s", error)


def _checked(place: Place) -> FilesystemStore | str | Path | None:
    store = place.store if isinstance(place, SnapshotManager) else place
    if store is None or isinstance(store, FilesystemStore | str | Path):
        return store
    raise InvalidInput(
        f"sessions cannot be recorded in a {type(store).__name__}: it has no place for what streams by",
        hint="use a FilesystemStore, or the path of one",
    )
