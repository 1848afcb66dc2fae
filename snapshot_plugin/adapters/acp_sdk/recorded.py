"""One recorded session of an SDK client: reduced as by the proxy, spooled and saved by the manager."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from anyio import from_thread

from snapshot_plugin.adapters.acp.journal import PROVIDER, reduce_spool
from snapshot_plugin.acp.reducer import Recording
from snapshot_plugin.acp.events import Entry
from snapshot_plugin.errors import InvalidInput, StoreUnavailable
from snapshot_plugin.manager.claim import Claim
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.manager.ports import Snapshottable
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["FromThread", "RecordedSession"]

log = logging.getLogger("snapshot_plugin.acp")


class RecordedSession:
    """A session as it is recorded, live in a manager. Used in the event loop's thread only."""

    def __init__(
        self, base: SessionSnapshot, manager: SnapshotManager, claim: Claim, let_go: AsyncExitStack
    ) -> None:
        self.session_id = base.session_id
        self.face: Snapshottable = self
        """What the manager knows as this session."""
        self._manager, self._claim, self._let_go = manager, claim, let_go
        self._recording = Recording(base)
        self._taken: SessionSnapshot | None = base
        self._is_written_ahead = self._is_spooled = True
        self._saves_itself = False

    @classmethod
    async def begin(cls, session_id: str, manager: SnapshotManager) -> RecordedSession:
        """Take a session that is not there yet; nothing is written before its first event.

        Raises:
            SessionLocked: another process has it.
            InvalidInput: it is no name for a session.
        """
        now = manager.clock()
        blank = SessionSnapshot(session_id=session_id, created_at=now, updated_at=now, provider_type=PROVIDER)
        async with _claimed(session_id, manager) as (stack, claim):
            return cls(blank, manager, claim, stack.pop_all())

    @classmethod
    async def reopen(cls, session_id: str, manager: SnapshotManager) -> tuple[RecordedSession, StoredSnapshot]:
        """Take a stored session, with what a killed process left in its spool. Its agent is not asked yet.

        Raises:
            SnapshotNotFound: there is no such session.
            SessionLocked: another process has it.
            SnapshotError: it cannot be read.
        """
        async with _claimed(session_id, manager) as (stack, claim):
            found = await manager.read(session_id)
            return cls._gone_on(found.snapshot, manager, claim, stack), found

    @classmethod
    async def going_on(cls, snapshot: SessionSnapshot, manager: SnapshotManager) -> RecordedSession:
        """Go on from a snapshot that was read already."""
        async with _claimed(snapshot.session_id, manager) as (stack, claim):
            return cls._gone_on(snapshot, manager, claim, stack)

    @classmethod
    def _gone_on(
        cls, snapshot: SessionSnapshot, manager: SnapshotManager, claim: Claim, stack: AsyncExitStack
    ) -> RecordedSession:
        session = cls(snapshot, manager, claim, stack.pop_all())
        session.cut_off("the client hung up")  # whoever had it before may have left in the middle of a turn
        return session

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return self._recording.running

    def snapshot(self) -> SessionSnapshot:
        """The session as recorded so far; the same object while nothing happens."""
        if self._taken is None:
            self._taken = self._recording.snapshot(self._manager.clock())
        return self._taken

    def stop_writing_ahead(self) -> None:
        """Keep the record in memory alone, for whoever asks for a snapshot."""
        self._is_written_ahead = False

    async def write(self, entry: Entry | None) -> None:
        """Write an event ahead, then take it in. What has to be durable is so on return.

        Where there is no spool, or it refuses, a durable event is made so by a snapshot of its own. A disk that
        refuses both costs the promise, never the session: the manager's events say so.
        """
        if entry is None:
            return
        self._take_in(entry.event)
        if entry.durable:
            await self.make_durable()

    async def make_durable(self) -> None:
        """Have what was taken in last on disk on return."""
        if not self._is_written_ahead:
            return
        if self._is_spooled:
            await self._claim.flush()
        else:
            await self._save()

    def cut_off(self, why: str) -> None:
        """A turn that is under way ends here, without an answer."""
        if self.running:
            self._take_in({"interrupted": why, "t": self.now()})

    def _take_in(self, event: dict[str, Any]) -> None:
        # No await in here: a snapshot taken between the two would claim a record that it does not contain.
        self._is_spooled = self._is_written_ahead and self._spooled(event)
        self._recording.apply(event)
        self._taken = None

    def _spooled(self, event: dict[str, Any]) -> bool:
        try:
            return self._manager.record(self.session_id, event)
        except InvalidInput as error:
            log.warning("session %s: not written ahead: %s", self.session_id, error)
            return False

    async def _save(self) -> None:
        try:
            await self._manager.snapshot(self.face, trigger="event")
        except Exception as error:  # noqa: BLE001 — the session goes on, and everybody is told
            self._manager.report.failed(self.session_id, "save", error)

    async def save_by_itself(self, *, baseline: StoredSnapshot | None = None) -> None:
        """Have the manager save it from now on."""
        await self._manager.start_auto_snapshot(self, baseline=baseline)
        self._saves_itself = True

    def touch(self) -> None:
        """Something is complete: have it saved soon."""
        self._manager.touch(self.session_id)

    async def close(self) -> None:
        """Save it for the last time, if the manager's settings say so, and let go of it."""
        if self._saves_itself:
            await self._manager.stop_auto_snapshot(self.session_id)
        await self._let_go.aclose()

    def now(self) -> str:
        """The time, as events carry it."""
        return rfc3339(self._manager.clock())


@asynccontextmanager
async def _claimed(session_id: str, manager: SnapshotManager) -> AsyncIterator[tuple[AsyncExitStack, Claim]]:
    """The session's claim, secured, in a stack to be taken over; let go of if nobody does."""
    manager.add_reducer(PROVIDER, reduce_spool)
    async with AsyncExitStack() as stack:
        claim = await stack.enter_async_context(manager.claiming(session_id))
        try:
            await claim.secure()
        except StoreUnavailable as error:
            # A disk that refuses now may take the next save; the session goes on all the same.
            manager.report.failed(session_id, "spool", error)
        yield stack, claim


class FromThread:
    """The session's record for work in a worker thread of the event loop."""

    def __init__(self, session: RecordedSession) -> None:
        self.session_id = session.session_id
        self._session = session

    def snapshot(self) -> SessionSnapshot:
        """The session as recorded so far."""
        return from_thread.run_sync(self._session.snapshot)

    def record(self, event: Mapping[str, Any], *, durable: bool = False) -> None:
        """Write an event ahead, then take it in."""
        from_thread.run(self._session.write, Entry(dict(event), durable))
