"""The search index over one store: updated, queried, and rebuilt whenever it cannot be used."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from snapshot_plugin.errors import SessionLocked, SnapshotError, StoreUnavailable
from snapshot_plugin.search.database import (
    IndexDatabase,
    cache_list,
    cached_list,
    heads,
    index_path,
    transaction,
)
from snapshot_plugin.store.look import look
from snapshot_plugin.system.files import locked

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.search.content import Facts, IndexedLines, IndexEntry
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Progress", "SearchIndex", "opened_index"]

T = TypeVar("T")
Step = Callable[[str], None]
Progress = Callable[[int], AbstractContextManager[Step]]
"""Called with the number of sessions to read; yields a function that is called before each of them."""

_AT_ONCE = 8
_BATCH = 32 << 20
"""Characters that are collected before they are written: a few large writes leave fewer FTS5 segments."""


@asynccontextmanager
async def opened_index(
    store: SnapshotStore, cache: Path, *, name: str, rebuild: bool = False
) -> AsyncIterator[SearchIndex]:
    """The index of *store*, which is called *name* (its id or URL), in the directory *cache*."""
    index = await anyio.to_thread.run_sync(SearchIndex, store, cache, name)
    try:
        if rebuild:
            await anyio.to_thread.run_sync(index.clear)
        yield index
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(index.close)


class SearchIndex:
    """The full-text index of a store.

    Each query first compares the index with the newest snapshots of the store and reads the sessions that
    changed. An interrupted update continues where it stopped. If the file cannot be used (a full or read-only
    disk, a lock that is never released), the index is built in memory: the query is slower, and its result is
    the same.
    """

    def __init__(self, store: SnapshotStore, cache: Path, name: str) -> None:
        self._store, self._name = store, name
        self._keys: SessionKeys | None = getattr(store, "session_keys", lambda _name: None)("+search")
        self.path = index_path(cache, name, sealed=self._keys is not None)
        try:
            self._database = IndexDatabase(self.path, store_id=name, keys=self._keys)
        except (OSError, sqlite3.Error, SnapshotError):
            self._database = self._in_memory()

    def _in_memory(self) -> IndexDatabase:
        return IndexDatabase(None, store_id=self._name)

    def clear(self) -> None:
        """Delete the index; the next query reads all sessions again."""
        self._database.clear()

    def close(self) -> None:
        """Close the index."""
        self._database.close()

    @property
    def is_kept(self) -> bool:
        """Whether the index is stored for the next process."""
        return self._database.is_kept

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Lock the index for the ``with`` block; yields False if another process has locked it."""
        try:
            lock = locked(f"{self.path}-indexing", session_id="", timeout=0)
        except SessionLocked:
            yield False
            return
        except OSError:  # the directory cannot be used, so no other process uses it
            yield True
            return
        with lock:
            yield True

    async def listed(self) -> Sequence[SnapshotMeta]:
        """All sessions of the store. For a store on disk the list is cached until one of its files changes."""
        mark = await anyio.to_thread.run_sync(self._mark)
        known = await anyio.to_thread.run_sync(self._recalled, mark) if mark else None
        if known is not None:
            return known
        metas = await self._store.list()
        if mark:
            await anyio.to_thread.run_sync(self._remember, mark, metas)
        return metas

    def _mark(self) -> str | None:
        path: Path | None = getattr(self._store, "path", None)
        seen = look(path) if path else None
        return seen.mark if seen else None

    def _recalled(self, mark: str) -> Sequence[SnapshotMeta] | None:
        return cached_list(self._database.connection, mark)

    def _remember(self, mark: str, metas: Sequence[SnapshotMeta]) -> None:
        connection = self._database.connection
        with suppress(sqlite3.DatabaseError), transaction(connection):  # it is only a cache
            cache_list(connection, mark, metas)

    async def ask(
        self,
        question: Callable[[sqlite3.Connection], T],
        metas: Sequence[SnapshotMeta],
        *,
        only: Collection[str] | None = None,
        progress: Progress = lambda _total: nullcontext(lambda _step: None),
    ) -> tuple[T, tuple[str, ...]]:
        """Update the index to *metas*, the full list of the store, and run a query on it.

        With *only*, just these sessions are updated. Returns the result, and the ids of the sessions that
        cannot be read.
        """
        wanted = metas if only is None else [meta for meta in metas if meta.session_id in only]
        names = frozenset(meta.session_id for meta in metas)
        for remedy in (self.clear, self._fall_back_to_memory):
            try:
                return await self._asked(question, wanted, names, progress)
            except (sqlite3.DatabaseError, OSError) as error:
                waited = getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                await anyio.to_thread.run_sync(self._fall_back_to_memory if waited else remedy)
        try:
            return await self._asked(question, wanted, names, progress)
        except sqlite3.DatabaseError as error:
            raise StoreUnavailable(f"sessions cannot be searched: {error}", hint="") from error

    async def facts(
        self, metas: Sequence[SnapshotMeta], progress: Progress
    ) -> tuple[Mapping[str, Facts], tuple[str, ...]]:
        """The facts of all sessions, and the ids of the sessions that cannot be read."""
        from snapshot_plugin.search.content import all_facts  # noqa: PLC0415 — searches do without

        answer = await self.ask(all_facts, metas, progress=progress)
        await anyio.to_thread.run_sync(self._database.keep)
        return answer

    def _fall_back_to_memory(self) -> None:
        self._database.close()
        self._database = self._in_memory()

    async def _asked(
        self,
        question: Callable[[sqlite3.Connection], T],
        wanted: Sequence[SnapshotMeta],
        names: frozenset[str],
        progress: Progress,
    ) -> tuple[T, tuple[str, ...]]:
        unreadable = await self._refresh(wanted, names, progress)
        return await anyio.to_thread.run_sync(lambda: question(self._database.connection)), unreadable

    # Updating --------------------------------------------------------------------------------

    async def _refresh(
        self, wanted: Sequence[SnapshotMeta], names: frozenset[str], progress: Progress
    ) -> tuple[str, ...]:
        known = await anyio.to_thread.run_sync(lambda: heads(self._database.connection))
        stale = [meta for meta in wanted if known.get(meta.session_id) != (meta.seq, meta.root)]
        gone = known.keys() - names
        if not stale and not gone:
            return ()
        unreadable: list[str] = []
        try:
            with progress(len(stale)) as step:
                await self._read_all(stale, step, unreadable)
            await anyio.to_thread.run_sync(self._drop, [*gone, *unreadable])
        finally:  # after an interruption, the next run continues from here
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._database.keep)
        return tuple(unreadable)

    async def _read_all(self, stale: Sequence[SnapshotMeta], step: Step, unreadable: list[str]) -> None:
        from snapshot_plugin.search.content import all_indexed  # noqa: PLC0415 — mostly nothing is stale

        batch: list[IndexEntry] = []
        again: list[SnapshotMeta] = []
        size = 0
        before = await anyio.to_thread.run_sync(all_indexed, self._database.connection)
        at_once = _AT_ONCE if self._store.capabilities.several_machines else 1
        for start in range(0, len(stale), at_once):
            some = stale[start : start + at_once]
            for meta in some:
                step(meta.title or meta.session_id)
            read = await self._read(some, before, unreadable)
            batch += read
            size += sum(entry.size for entry in read)
            if size > _BATCH:
                again += await anyio.to_thread.run_sync(self._write, batch)
                batch, size = [], 0
        again += await anyio.to_thread.run_sync(self._write, batch)
        if again:
            await self._read_all(again, lambda _name: None, unreadable)

    async def _read(
        self, some: Sequence[SnapshotMeta], before: Mapping[str, IndexedLines], unreadable: list[str]
    ) -> list[IndexEntry]:
        """Read several sessions concurrently, because each read over a network has to wait."""
        from snapshot_plugin.search.content import read_entry  # noqa: PLC0415 — as above

        found: list[IndexEntry] = []

        async def read(meta: SnapshotMeta) -> None:
            try:
                found.append(await read_entry(self._store, meta, before.get(meta.session_id)))
            except SnapshotError:
                unreadable.append(meta.session_id)

        if len(some) == 1:
            await read(some[0])
        else:
            async with anyio.create_task_group() as tasks:
                for meta in some:
                    tasks.start_soon(read, meta)
        return found

    def _write(self, batch: Sequence[IndexEntry]) -> list[SnapshotMeta]:
        """Write sessions to the index. Returns those that another process updated meanwhile."""
        from snapshot_plugin.search.content import put  # noqa: PLC0415 — as above

        connection = self._database.connection
        with transaction(connection):
            return [entry.meta for entry in batch if not put(connection, entry)]

    def _drop(self, session_ids: Sequence[str]) -> None:
        from snapshot_plugin.search.content import drop  # noqa: PLC0415 — as above

        connection = self._database.connection
        with transaction(connection):
            for session_id in session_ids:
                drop(connection, session_id)
