"""The sessions one connection records: begun, gone on with, branched off, let go."""

from __future__ import annotations

import contextlib
import logging

from snapshot_plugin.acp.events import Entry
from snapshot_plugin.acp.messages import Message
from snapshot_plugin.adapters.acp_sdk.recorded import RecordedSession
from snapshot_plugin.errors import InvalidInput, SessionLocked, SnapshotError, SnapshotNotFound
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["Keeper"]

log = logging.getLogger("snapshot_plugin.acp")


class Keeper:
    """Recorded sessions by the id the client knows.

    Args:
        manager: keeps what is recorded.
        saves: have the manager save the sessions by itself; else that is the business of whoever starts them, and
            they are written ahead only if the manager's settings enable persistence.
    """

    def __init__(self, manager: SnapshotManager, *, saves: bool) -> None:
        self.manager = manager
        self.open: dict[str, RecordedSession] = {}
        self._saves = saves

    async def begin(self, session_id: str, first: Message) -> RecordedSession:
        """Record a new session; its first event is durable on return."""
        session = await RecordedSession.begin(session_id, self.manager)
        await self._take(session)
        await session.write(Entry(first, durable=True))
        return session

    async def reopen(self, session_id: str) -> RecordedSession:
        """Record a stored session further.

        Raises:
            SnapshotNotFound: there is no such session.
            SessionLocked: it is live, here or elsewhere.
        """
        if session_id in self.manager.live:
            raise SessionLocked(f"session {session_id!r} is live in this manager", session_id=session_id)
        session, found = await RecordedSession.reopen(session_id, self.manager)
        await self._take(session, found)
        return session

    async def branch(self, parent_id: str, session_id: str) -> RecordedSession:
        """Record a session that begins as a copy of one that is recorded here."""
        await self.manager.fork(parent_id, as_id=session_id)
        return await self.reopen(session_id)

    def adopt(self, session: RecordedSession) -> None:
        """Record a session further that somebody else has opened, and will have saved."""
        self.open[session.session_id] = session
        if not self._saves and not self.manager.config.enable_persistence:
            session.stop_writing_ahead()

    async def _take(self, session: RecordedSession, found: StoredSnapshot | None = None) -> None:
        self.adopt(session)
        if not self._saves:
            return
        try:
            await session.save_by_itself(baseline=found)
        except BaseException:
            await self.let_go(session.session_id)
            raise

    async def is_free(self, session_id: str) -> bool:
        """Whether nothing is kept under this id: agents that count their sessions begin anew in each process."""
        if session_id in self.manager.live:
            return False
        try:
            session = await RecordedSession.begin(session_id, self.manager)
        except (SessionLocked, InvalidInput):
            return False
        try:
            return not await self.manager.store.history(session_id)
        except SnapshotNotFound:
            return True
        finally:
            await session.close()

    async def write(self, session_id: str | None, entry: Entry | None) -> None:
        """Write an event of a session down, if that is recorded."""
        if session := self.open.get(session_id or ""):
            await session.write(entry)

    async def let_go(self, session_id: str) -> None:
        """Save a session for the last time and let go of it."""
        if session := self.open.pop(session_id, None):
            await session.close()

    async def delete(self, session_id: str) -> None:
        """Let go of a session and move what is kept of it to the trash."""
        await self.let_go(session_id)
        with contextlib.suppress(SnapshotNotFound, InvalidInput):
            await self.manager.store.delete(session_id)

    def failed(self, session_id: str, error: Exception) -> None:
        """Tell that a session is not recorded; it goes on all the same."""
        log.warning("session %s is NOT recorded: %s", session_id, error)
        wrapped = error if isinstance(error, SnapshotError) else SnapshotError(str(error), session_id=session_id)
        self.manager.report.failed(session_id, "spool", wrapped)
