"""One recorded session: written ahead to its spool, made a snapshot at the end of each turn.

The spool is the write-ahead log and the store the checkpoint. What must be durable before it is passed on (a
prompt, an answer, a permission request) is synced in the spool, which costs one ``fdatasync`` and no wait for
the store; the snapshot follows in the background.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import anyio
from anyio.from_thread import BlockingPortal

from snapshot_plugin.adapters.acp.flusher import Flusher
from snapshot_plugin.acp.parts import plain
from snapshot_plugin.acp.reducer import Recording, reduce_events
from snapshot_plugin.errors import Conflict, InvalidInput, SnapshotError, SnapshotNotFound
from snapshot_plugin.manager.labels import typed_label
from snapshot_plugin.manager.lease import Lease, Owner
from snapshot_plugin.manager.outcome import Outcome
from snapshot_plugin.manager.predeploy import Asked
from snapshot_plugin.manager.recovery import recover, recover_session, upto_of, with_upto
from snapshot_plugin.manager.spool import Spool, SpoolRecord
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["PROVIDER", "Journal", "Journals", "recover_all", "reduce_spool", "stamp"]

PROVIDER = "acp"
_SOON = 0.3
log = logging.getLogger("snapshot_plugin.acp")


def reduce_spool(snapshot: SessionSnapshot, records: Sequence[SpoolRecord]) -> SessionSnapshot:
    """The reducer of recovery: the same events, the same record. A turn without its answer was interrupted."""
    events = [record.data for record in records]
    cut = {"interrupted": "the recorder was killed"}
    return reduce_events(snapshot.evolve(provider_type=PROVIDER), [*events, cut], snapshot.updated_at)


class Journal:
    """The record of one live session. Only its owner (by lease) has one."""

    def __init__(
        self,
        base: SessionSnapshot,
        lease: Lease,
        spool: Spool,
        *,
        save: Callable[[Journal], None],
        recorded: Callable[[], None],
    ) -> None:
        self.session_id = base.session_id
        self.lease = lease
        self._recording = Recording(base)
        self._spool = spool
        self._save, self._recorded = save, recorded
        self._lock = threading.Lock()
        self._dirty = self._scheduled = False
        self._unwritten = self._caught_up = 0

    def record(self, event: Mapping[str, Any], *, durable: bool = False) -> None:
        """Write an event ahead, then take it in. A disk that refuses costs the write-ahead, never the session.

        Then nothing more is written ahead until a snapshot holds what is missing, and that is tried soon: a spool
        with a gap would be recovered as a conversation that never was.
        """
        data = dict(event)
        with self._lock:
            written = self._unwritten == self._caught_up and self._write_ahead(data)
            self._unwritten += not written
            if written and durable:
                self.flush()
            self._recording.apply(data)
            self._dirty = True
        if not durable:
            self._recorded() if written else self.checkpoint()

    def _write_ahead(self, data: dict[str, Any]) -> bool:
        try:
            try:
                self._spool.append(data)
            except InvalidInput:  # a number that JSON cannot carry: written as the record will have it
                self._spool.append(plain(data))
        except SnapshotError as error:
            log.warning("session %s: not written ahead: %s", self.session_id, error)
            return False
        return True

    def flush(self) -> None:
        """Make what was written ahead safe from a power cut. A disk that refuses is only told of."""
        try:
            self._spool.flush()
        except SnapshotError as error:
            log.warning("session %s: not safe from a power cut yet: %s", self.session_id, error)

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return self._recording.running

    def snapshot(self) -> SessionSnapshot:
        """The session as recorded so far."""
        with self._lock:
            return self._recording.snapshot(datetime.now(UTC))

    def checkpoint(self) -> None:
        """Have a snapshot made soon, in the background; the spool holds everything until then."""
        if self._dirty and not self._scheduled:
            self._scheduled = True
            self._save(self)

    async def save_soon(self, store: FilesystemStore) -> None:
        """Save once the traffic has had a moment: a save never stands in the way of the next prompt."""
        await anyio.sleep(_SOON)
        self._scheduled = False
        await self.save_if_dirty(store)

    async def save_if_dirty(self, store: FilesystemStore) -> None:
        """Save unless nothing happened since the last time."""
        if self._dirty:
            await self.save(store)

    async def save(self, store: FilesystemStore, trigger: str = "event", tags: Sequence[str] = ()) -> Outcome:
        """Save now. A failure is logged and told; the spool keeps everything until a save goes through."""
        with self._lock:
            upto, unwritten, self._dirty = self._spool.last, self._unwritten, False
            snapshot = with_upto(self._recording.snapshot(datetime.now(UTC)), upto)
        try:
            ref = await store.save(snapshot, trigger=trigger, tags=tags)
            self._spool.truncate(upto)
            self._caught_up = unwritten
        except Conflict as error:
            log.warning("session %s was changed by another writer: %s", self.session_id, error)
            return Outcome.failed(self.session_id, error)
        except SnapshotError as error:
            self._dirty = True
            log.warning("session %s: not saved yet: %s", self.session_id, error)
            return Outcome.failed(self.session_id, error)
        return Outcome.saved(ref)

    def close(self) -> None:
        """Let go of the session, as properly stopped."""
        self._spool.close()
        self.lease.release()


class _Recorded(NamedTuple):
    """A session of the proxy that another process asks about."""

    journal: Journal
    store: FilesystemStore

    def relabel(self, request: Mapping[str, Any]) -> None:
        self.journal.record({"label": typed_label(request), "t": stamp()}, durable=True)

    async def save_as(self, trigger: str, tags: Sequence[str] = ()) -> Outcome:
        return await self.journal.save(self.store, trigger, tags)


class Journals:
    """Opens sessions for recording: leased, recovered, loaded."""

    def __init__(self, store: FilesystemStore, portal: BlockingPortal) -> None:
        self.store, self._portal = store, portal
        self.open: dict[str, Journal] = {}
        self._flusher = Flusher(self._flush)
        self.control: str | None = None
        """Where other processes can ask about these sessions; see `asked`."""
        self.on_deleted: Callable[[Trashed], Awaitable[object]] | None = None
        """Told what a user deleted, so that it can be taken back."""

    def asked(self, session_id: str) -> Asked | None:
        """The session, to be saved or labelled because another process asks."""
        journal = self.open.get(session_id)
        return _Recorded(journal, self.store) if journal else None

    def begin(self, snapshot: SessionSnapshot, first: Mapping[str, Any]) -> Journal:
        """Record a new session. Its first event is durable on return, and so is what it begins with."""
        if snapshot.messages:  # a fork: the spool holds only what happens from now on
            self._portal.call(partial(self.store.save, snapshot, trigger="fork"))
        journal = self._adopt(snapshot)
        journal.record({"provider_type": PROVIDER, **first}, durable=True)
        journal.checkpoint()
        return journal

    def resume(self, session_id: str) -> Journal:
        """Record a stored session further. What a killed process left in its spool is recovered first.

        Raises:
            SnapshotNotFound: there is no such session.
            SessionLocked: another process has it.
        """
        if session_id in self.open:
            return self.open[session_id]
        return self._adopt(None, session_id)

    def _adopt(self, snapshot: SessionSnapshot | None, session_id: str = "") -> Journal:
        session_id = snapshot.session_id if snapshot else session_id
        directory = self.store.session_dir(session_id)
        owner = Owner.this_process(since=datetime.now(UTC), control=self.control)
        lease = Lease.acquire(directory, owner)
        try:
            if snapshot is None:
                snapshot = self._portal.call(self._load, session_id, lease)
            keys = self.store.session_keys(session_id)
            spool = Spool.open(directory, session_id=session_id, keys=keys, after=upto_of(snapshot))
        except BaseException:
            lease.release()
            raise
        journal = Journal(snapshot, lease, spool, save=self._schedule, recorded=self._flusher.wake)
        if journal.running:  # whoever had it before went away in the middle of a turn
            journal.record({"interrupted": "the client hung up", "t": stamp()})
        self.open[session_id] = journal
        return journal

    async def _load(self, session_id: str, lease: Lease) -> SessionSnapshot:
        await recover_session(
            self.store, session_id, lease=lease, reducers={PROVIDER: reduce_spool}, now=datetime.now(UTC)
        )
        return await self.store.load(session_id)

    def _flush(self) -> None:
        for journal in tuple(self.open.values()):
            journal.flush()

    def _schedule(self, journal: Journal) -> None:
        self._portal.start_task_soon(journal.save_soon, self.store)

    def finish(self, session_id: str) -> None:
        """Save a session for the last time and let go of it."""
        journal = self.open.pop(session_id, None)
        if journal:
            self._portal.call(journal.save, self.store, "exit")
            journal.close()

    def newest(self, session_id: str) -> tuple[SessionSnapshot, int]:
        """A session as it is now, live or stored, and the number of its newest snapshot."""
        journal = self.open.get(session_id)
        if journal:
            self._portal.call(journal.save_if_dirty, self.store)
        stored = self._portal.call(self.store.read, session_id)
        return stored.snapshot, stored.ref.seq

    def has(self, session_id: str) -> bool:
        """Whether there is such a session, live here or stored."""
        with contextlib.suppress(SnapshotNotFound):
            return session_id in self.open or bool(self._portal.call(self.store.history, session_id))
        return False

    def list(self) -> Sequence[SnapshotMeta]:
        """Every session, the live ones as they are now."""
        for journal in tuple(self.open.values()):
            self._portal.call(journal.save_if_dirty, self.store)
        return self._portal.call(self.store.list)

    def delete(self, session_id: str) -> Trashed | None:
        """Move a session to the trash; one that is not there is gone already."""
        with contextlib.suppress(SnapshotNotFound, InvalidInput):
            return self._portal.call(self.store.delete, session_id)
        return None

    def delete_for_user(self, session_id: str) -> None:
        """The same because the user said so: whoever wants to know is told."""
        trashed = self.delete(session_id)
        if trashed and self.on_deleted:
            try:
                self._portal.call(self.on_deleted, trashed)
            except SnapshotError as error:
                log.warning("session %s is in the trash, and undo will not know of it: %s", session_id, error)

    def deleted(self) -> frozenset[str]:
        """The sessions in the trash."""
        return frozenset(trashed.session_id for trashed in self._portal.call(self.store.trash))

    def finish_all(self) -> None:
        """The same for every session."""
        for session_id in tuple(self.open):
            self.finish(session_id)


async def recover_all(store: FilesystemStore) -> list[str]:
    """Turn what killed proxies left behind into snapshots, and say so, a line for each session."""
    found = await recover(store, reducers={PROVIDER: reduce_spool}, now=datetime.now(UTC))
    return [
        f"session {each.session_id} ended unexpectedly; {each.records} update(s) recovered"
        + (f" ({each.problem})" if each.problem else "")
        for each in found
        if each.records or each.problem
    ]


def stamp() -> str:
    """Now, as events carry it."""
    return rfc3339(datetime.now(UTC))
