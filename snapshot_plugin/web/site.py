"""The store, and the caches that requests share: the last list, and the spools of live sessions."""

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
from snapshot_plugin.live.owners import ownerships
from snapshot_plugin.model.ids import session_id_of
from snapshot_plugin.operations.conversation import spool_mark, spooled
from snapshot_plugin.operations.references import Target, exactly
from snapshot_plugin.operations.searching import index_all
from snapshot_plugin.operations.sessions import SessionRow, every_row
from snapshot_plugin.operations.showing import Shown, show
from snapshot_plugin.operations.work import Work
from snapshot_plugin.store.look import Look, look

if TYPE_CHECKING:
    from starlette.requests import Request

    from snapshot_plugin.live.owners import Ownership
    from snapshot_plugin.live.recovery import Spooled
    from snapshot_plugin.manager.config import SnapshotConfig
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Site", "site_of"]

_KEPT = 50
"""How many snapshots `Site.shown` caches."""


class Site:
    """One store, open while the server runs.

    Args:
        place: the value of ``--store``, if given; commands that the user copies include it.
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
        self._rows: tuple[object, list[SessionRow]] | None = None
        self._listing = anyio.Lock()
        self._unindexed = anyio.Event()
        self._shown: dict[tuple[str, int, str | None], Shown] = {}
        self._spools: dict[str, tuple[tuple[int, ...], Spooled | None]] = {}

    @property
    def work(self) -> Work:
        """The context for operations."""
        return Work(self.config, self._environ, self._clock())

    @property
    def is_encrypted(self) -> bool:
        """Whether the store is encrypted."""
        return getattr(self.store, "session_keys", lambda _session_id: None)("+operations") is not None

    @property
    def root(self) -> Path | None:
        """The store's directory, if it is on this disk."""
        return getattr(self.store, "path", None)

    # The list ----------------------------------------------------------------------------------------------

    async def _look(self) -> Look | None:
        """Check a store on this disk for changes; None for other stores, which must be listed again."""
        if self.root is None:
            return None
        seen = await anyio.to_thread.run_sync(look, self.root)
        if seen is None:
            raise SnapshotNotFound(f"the store at {self.root} is gone", hint="it was moved, removed or unmounted")
        return seen

    async def metas(self) -> Sequence[SnapshotMeta]:
        """The store's list; read again only if something changed."""
        async with self._listing:
            return await self._metas(await self._look())

    async def _metas(self, seen: Look | None) -> Sequence[SnapshotMeta]:
        if self._listed is None or seen is None or self._listed[0] != seen.mark:
            self._listed = (seen.mark if seen else "", await self.store.list())
        return self._listed[1]

    async def rows(self) -> list[SessionRow]:
        """All sessions with their owners, including those that have only a spool yet.

        For a store on this disk, the same list object is returned until something changes.
        """
        async with self._listing:
            seen = await self._look()
            metas = await self._metas(seen)
            state = (seen.mark, await self._owners(seen.leased)) if seen else None
            if self._rows is None or state is None or self._rows[0] != state:
                self._rows = (state, await every_row(self.store, metas))
            return self._rows[1]

    async def _owners(self, directories: Sequence[str]) -> Mapping[str, Ownership]:
        if not directories or self.root is None:
            return {}
        names = [name for directory in directories if (name := session_id_of(directory)) is not None]
        return await anyio.to_thread.run_sync(ownerships, self.root, names)

    async def row(self, name: str) -> SessionRow:
        """The row of the session named in a URL."""
        session_id = unquote(name)
        rows = await self.rows()
        found = next((row for row in rows if row.session_id == session_id), None)
        if found is None:
            session_id = (await self.target(name)).session_id
            found = next((row for row in await self.rows() if row.session_id == session_id), None)
        if found is None:
            told = f"there is no session {session_id}"
            raise SnapshotNotFound(told, session_id=session_id, run="asnap list --all")
        return found

    async def session_id(self, name: str) -> str:
        """The id of the session named in a URL."""
        session_id, listed = unquote(name), self._listed[1] if self._listed else ()
        if any(meta.session_id == session_id for meta in listed):  # if it was deleted since, the store says so
            return session_id
        return (await self.row(name)).session_id

    async def target(self, name: str) -> Target:
        """The session or snapshot named in a URL. Names are encoded twice, as ids may contain any character."""
        return exactly(unquote(name), await self.metas())

    # Live sessions -----------------------------------------------------------------------------------------

    async def spooled(self, session_id: str) -> Spooled | None:
        """The session including the records in its spool; None if the spool is empty."""
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
        """Schedule an update of the search index in the background."""
        self._unindexed.set()

    async def keep_indexed(self) -> None:
        """Update the search index after each `index_soon`, until cancelled."""
        while True:
            await self._unindexed.wait()
            self._unindexed = anyio.Event()  # first: a change during the update needs another one
            with contextlib.suppress(SnapshotError):  # the next search reports it
                await index_all(self.work, self.store)

    # Details of a session ----------------------------------------------------------------------------------

    async def shown(self, target: Target) -> Shown:
        """The details of a session or snapshot, cached for the last snapshots read."""
        key = (target.session_id, target.meta.seq if target.seq is None else target.seq, target.meta.root)
        found = self._shown.get(key)
        if found is None:
            _stored, found = await show(self.work, self.store, target)
            self._shown = dict([*self._shown.items(), (key, found)][-_KEPT:])
        return found


def site_of(request: Request) -> Site:
    """The site that a request is about."""
    site: Site = request.app.state.site
    return site
