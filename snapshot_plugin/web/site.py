"""The store that is shown, and what requests share: the list as it was last read, and live sessions' spools."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import anyio
import anyio.to_thread

from snapshot_plugin.errors import SnapshotError, SnapshotNotFound
from snapshot_plugin.operations.references import Target, resolve
from snapshot_plugin.operations.searching import index_all
from snapshot_plugin.operations.session_rows import SessionRow, every_row
from snapshot_plugin.operations.showing import Shown, show
from snapshot_plugin.operations.spooled import Spooled, spool_mark, spooled
from snapshot_plugin.operations.work import Work
from snapshot_plugin.store.look import look

if TYPE_CHECKING:
    from snapshot_plugin.manager.config import SnapshotConfig
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Site"]

_KEPT = 50
"""Of how many snapshots is remembered what is known of them."""


class Site:
    """One store, open while the server runs.

    Args:
        place: ``--store``, where it was given: commands that are shown to be copied name it.
    """

    def __init__(
        self,
        store: SnapshotStore,
        config: SnapshotConfig,
        *,
        environ: Mapping[str, str],
        place: str | None = None,
        read_only: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.store, self.config, self.place, self.read_only = store, config, place, read_only
        self._environ, self._clock = environ, clock
        self._listed: tuple[str, Sequence[SnapshotMeta]] | None = None
        self._listing = anyio.Lock()
        self._unindexed = anyio.Event()
        self._shown: dict[tuple[str, int, str | None], Shown] = {}
        self._spools: dict[str, tuple[tuple[int, ...], Spooled | None]] = {}

    @property
    def work(self) -> Work:
        """What an operation is given."""
        return Work(self.config, self._environ, self._clock())

    @property
    def is_encrypted(self) -> bool:
        """Whether the store is sealed."""
        return getattr(self.store, "session_keys", lambda _session_id: None)("+operations") is not None

    @property
    def root(self) -> Path | None:
        """Where the store is, if it is on this disk."""
        return getattr(self.store, "path", None)

    # The list ----------------------------------------------------------------------------------------------

    async def mark(self) -> str | None:
        """Changes whenever a session of a store on this disk does; None where only a new list can tell."""
        if self.root is None:
            return None
        seen = await anyio.to_thread.run_sync(look, self.root)
        if seen is None:
            raise SnapshotNotFound(f"the store at {self.root} is gone", hint="it was moved, removed or unmounted")
        return seen.mark

    async def metas(self) -> Sequence[SnapshotMeta]:
        """What the store lists; read again only when something changed."""
        async with self._listing:
            mark = await self.mark()
            if self._listed is None or mark is None or self._listed[0] != mark:
                self._listed = (mark or "", await self.store.list())
            return self._listed[1]

    async def rows(self) -> list[SessionRow]:
        """Every session with who has it, also those that are only in their spools yet."""
        return await every_row(self.store, await self.metas())

    async def row(self, name: str) -> SessionRow:
        """One session, named in a URL."""
        session_id = unquote(name)
        rows = await self.rows()
        found = next((row for row in rows if row.session_id == session_id), None)
        if found is None:
            session_id = (await self.target(name)).session_id
            found = next(row for row in rows if row.session_id == session_id)
        return found

    async def session_id(self, name: str) -> str:
        """The id of a session that is named in a URL."""
        session_id = unquote(name)
        if any(meta.session_id == session_id for meta in await self.metas()):
            return session_id
        return (await self.row(name)).session_id

    async def target(self, name: str) -> Target:
        """The session or snapshot that a URL names. Names are encoded twice, as ids may hold anything."""
        return resolve(unquote(name), await self.metas())

    # Live sessions -----------------------------------------------------------------------------------------

    async def spooled(self, session_id: str) -> Spooled | None:
        """The session with what is only in its spool; None if there is nothing there."""
        mark = await anyio.to_thread.run_sync(spool_mark, self.store, session_id)
        if not mark:
            self._spools.pop(session_id, None)
            return None
        tip = await self.store.tip(session_id)
        mark = (*mark, tip.seq if tip else 0)
        known = self._spools.get(session_id)
        if known is None or known[0] != mark:
            found = await anyio.to_thread.run_sync(spooled, self.store, session_id)
            self._spools = {session_id: (mark, found)}
            return found
        return known[1]

    # The search index ----------------------------------------------------------------------------------------

    def index_soon(self) -> None:
        """Have the search index brought up to date in the background."""
        self._unindexed.set()

    async def keep_indexed(self) -> None:
        """Bring the search index up to date whenever that is wanted, until cancelled."""
        while True:
            await self._unindexed.wait()
            with contextlib.suppress(SnapshotError):  # the next search tells
                await index_all(self.work, self.store)
            self._unindexed = anyio.Event()

    # What is known of a session ----------------------------------------------------------------------------

    async def shown(self, target: Target) -> Shown:
        """What is known of a session or snapshot; read once for each snapshot, as long as it is among the last."""
        key = (target.session_id, target.meta.seq if target.seq is None else target.seq, target.meta.root)
        found = self._shown.get(key)
        if found is None:
            _stored, found = await show(self.work, self.store, target)
            self._shown = dict([*self._shown.items(), (key, found)][-_KEPT:])
        return found
