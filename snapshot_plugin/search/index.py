"""The search index over one store: updated, queried, and rebuilt whenever it cannot be used."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from snapshot_plugin.errors import SessionLocked, SnapshotError, StoreUnavailable
from snapshot_plugin.search.database import IndexDatabase, index_path, transaction
from snapshot_plugin.search.listing import recalled, remember
from snapshot_plugin.search.rows import heads
from snapshot_plugin.store.lock import locked
from snapshot_plugin.store.look import look

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.search.content import Entry, IndexedLines
    from snapshot_plugin.search.facts import Facts
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Progress", "SearchIndex", "opened_index"]

T = TypeVar("T")
Step = Callable[[str], None]
Progress = Callable[[int], AbstractContextManager[Step]]
"""Given how many sessions have to be read; yields what is called before each of them."""

_AT_ONCE = 8
_BATCH = 8 << 20
"""How many characters are collected before they are written: few large writes make a better index."""


@asynccontextmanager
async def opened_index(
    store: SnapshotStore, cache: Path, *, name: str, rebuild: bool = False
) -> AsyncIterator[SearchIndex]:
    """The index of *store*, which is called *name* (its id or URL), in the directory *cache*."""
    index = await anyio.to_thread.run_sync(SearchIndex, store, cache, name)
    try:
        if rebuild:
            await anyio.to_thread.run_sync(index.throw_away)
        yield index
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(index.close)


class SearchIndex:
    """What the sessions of a store say, ready to be searched.

    The store is always right: each question first compares the index with the store's heads, and reads again
    what changed. What was read before an interruption is not read again.

    A place that cannot be used (a full or read-only disk, another process that never lets go) costs time, not
    answers: the index is then made in memory.
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

    def throw_away(self) -> None:
        """Forget everything; the next question reads all sessions again."""
        self._database.throw_away()

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    @property
    def is_kept(self) -> bool:
        """Whether what is indexed now is there for the next process."""
        return self._database.is_kept

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether nobody else holds this; it is held to the end of the ``with`` block."""
        try:
            lock = locked(f"{self.path}-indexing", session_id="", timeout=0)
        except SessionLocked:
            yield False
            return
        except OSError:  # a place that cannot be used: nobody works there
            yield True
            return
        with lock:
            yield True

    async def listed(self) -> Sequence[SnapshotMeta]:
        """What the store lists. For a store on disk, remembered as long as none of its files changed."""
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
        return recalled(self._database.connection, mark)

    def _remember(self, mark: str, metas: Sequence[SnapshotMeta]) -> None:
        connection = self._database.connection
        with suppress(sqlite3.DatabaseError), transaction(connection):  # next time, then
            remember(connection, mark, metas)

    async def ask(
        self,
        question: Callable[[sqlite3.Connection], T],
        metas: Sequence[SnapshotMeta],
        *,
        only: Collection[str] | None = None,
        progress: Progress = lambda _total: nullcontext(lambda _step: None),
    ) -> tuple[T, tuple[str, ...]]:
        """Bring the index up to date with *metas*, all that the store lists, and put a question to it.

        With *only*, the question is about these sessions, and no others are read for it. Returns the answer, and
        the sessions that cannot be read.
        """
        wanted = metas if only is None else [meta for meta in metas if meta.session_id in only]
        names = frozenset(meta.session_id for meta in metas)
        for remedy in (self.throw_away, self._give_up_the_file):
            try:
                return await self._asked(question, wanted, names, progress)
            except (sqlite3.DatabaseError, OSError) as error:
                waited = getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                await anyio.to_thread.run_sync(self._give_up_the_file if waited else remedy)
        try:
            return await self._asked(question, wanted, names, progress)
        except sqlite3.DatabaseError as error:
            raise StoreUnavailable(f"sessions cannot be searched: {error}", hint="") from error

    async def facts(
        self, metas: Sequence[SnapshotMeta], progress: Progress
    ) -> tuple[Mapping[str, Facts], tuple[str, ...]]:
        """What statistics need of all sessions, and those that cannot be read."""
        from snapshot_plugin.search.content import all_facts  # noqa: PLC0415 — searches do without

        answer = await self.ask(all_facts, metas, progress=progress)
        await anyio.to_thread.run_sync(self._database.keep)
        return answer

    def _give_up_the_file(self) -> None:
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

    # Bringing it up to date --------------------------------------------------------------------------------

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

        batch: list[Entry] = []
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
    ) -> list[Entry]:
        """Read sessions at the same time: over a network, each answer takes its while to come."""
        from snapshot_plugin.search.content import read_entry  # noqa: PLC0415 — as above

        found: list[Entry] = []

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

    def _write(self, batch: Sequence[Entry]) -> list[SnapshotMeta]:
        """Put sessions into the index. Returns those that another process changed there meanwhile."""
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
