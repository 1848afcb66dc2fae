"""Begin, resume, finish, list and delete the live sessions of one process, for hosts that record events.

Synchronous and thread-safe; hosts with an event loop call it in a worker thread (`store.hop.in_thread`). Daemon
threads save and flush (`schedule`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from snapshot_plugin.errors import InvalidInput, SessionLocked, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.events import Event, Reporter, log_event
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.outcome import Outcome
from snapshot_plugin.live.place import place_of
from snapshot_plugin.live.ports import LiveContext, Reduce, Reducer
from snapshot_plugin.live.recovery import Spooled, with_spool
from snapshot_plugin.live.schedule import FLUSH_INTERVAL, FlushThread, SaveThreads
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.model.ids import short_id
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import utc_now
from snapshot_plugin.store.base import SnapshotStore, Trashed
from snapshot_plugin.system import forks

__all__ = ["LiveSessions", "MakeReducer"]

MakeReducer = Callable[[SessionSnapshot], Reducer]
"""Makes the reducer of a session, given the snapshot it continues from."""


class _StillBusy(SessionLocked):
    """Another thread has begun to open or close the session, and is not done in time."""


class LiveSessions:
    """The live sessions of one process.

    Args:
        store: where snapshots go. A store without a live place (a bucket) has no leases and no spools: events are
            then only in the next snapshot, and durable ones are saved immediately.
        reducer: makes the reducer of a session, given the snapshot it continues from.
        emit: receives what happens, from any thread; it must be quick and must not raise. Default: a log.
        clock: returns the time of day for timestamps.
        reducers: more reducers for recovery, by provider type.
        flush_interval: seconds between flushes: the most that a power cut can lose of an unfinished turn.
    """

    def __init__(
        self,
        store: SnapshotStore,
        reducer: MakeReducer,
        *,
        emit: Callable[[Event], object] = log_event,
        clock: Callable[[], datetime] = utc_now,
        reducers: Mapping[str, Reduce] | None = None,
        flush_interval: float = FLUSH_INTERVAL,
    ) -> None:
        self.open: dict[str, LiveSession] = {}
        """The sessions that are live here, by id."""
        self.control: str | None = None
        """The path of the socket where other processes can ask about these sessions."""
        self.overtaken: Callable[[LiveSession], object] = lambda _session: None
        """Called once, from any thread, when another process has taken a session over. The host stops its agent."""
        self.is_stopped = False
        self.refused = ""
        """Why no more sessions are begun or resumed; empty while they are."""
        self._reducer = reducer
        self.clock = clock
        self._free = forks.condition()
        self._busy: set[str] = set()
        """The sessions that a thread begins, resumes or finishes now."""
        forks.in_child(self._forked)
        self.patience = 30.0
        """Seconds to wait for such a thread: a disk may never answer."""
        self._saves = SaveThreads()
        self._flushes = FlushThread(self.flush, interval=flush_interval)
        self.store = store.sync
        """Where the snapshots are kept."""
        self.is_shared = store.capabilities.several_machines
        """Whether other machines may take these sessions over."""
        self._context = LiveContext(
            place=place_of(store),
            shared=self.is_shared,
            store=self.store,
            owner=self._owner,
            report=Reporter(emit, clock),
            clock=clock,
            reducers=reducers or {},
            recorded=self._flushes.wake,
            flush_due=self._flushes.due,
            touch=self._saves.touch,
            overtaken=self._overtaken,
            forget=self._saves.forget,
        )

    def _forked(self) -> None:
        self._busy = set()

    def _overtaken(self, live: LiveSession) -> None:
        self.overtaken(live)

    @property
    def may_be_shown(self) -> bool:
        """Whether output may be passed on; see `LiveSession.may_be_shown`."""
        return all(live.may_be_shown for live in tuple(self.open.values()))

    @property
    def seconds_left(self) -> float:
        """For how long no other owner can take any of the sessions; see `LiveSession.seconds_left`."""
        return min((live.seconds_left for live in tuple(self.open.values())), default=math.inf)

    def _owner(self) -> Owner:
        return Owner.this_process(since=self.clock(), control=self.control)

    # Beginning and ending --------------------------------------------------------------------------------

    def begin(self, snapshot: SessionSnapshot, first: Mapping[str, Any] | None = None) -> LiveSession:
        """Record a new session that starts as *snapshot*; *first*, its first event, is durable on return.

        If the store refuses, the session starts anyway: `LiveSession.trouble` says why it is not recorded, and
        every event retries. A snapshot that has messages (a fork) is saved first.

        Raises:
            SessionLocked: another process owns the session.
            InvalidInput: the process is ending, and starts no more sessions.
        """
        with self._alone(snapshot.session_id):
            self._must_not_be_refused(snapshot.session_id)
            return self._begin(snapshot, first)

    def _begin(self, snapshot: SessionSnapshot, first: Mapping[str, Any] | None) -> LiveSession:
        live = LiveSession(snapshot.session_id, self._context, reducer=self._reducer(snapshot))
        try:
            live.take()
        except SessionLocked:
            raise
        except SnapshotError as error:  # the disk refused, or the key of the store is missing
            live.failed("spool", error)
        if snapshot.messages or short_id(live.session_id) != live.session_id:  # places keep only the short id
            live.must_be_saved()
            live.save("fork" if snapshot.messages else "begin")
        self.open[live.session_id] = live
        if first is not None:
            live.record(first, durable=True)
        live.checkpoint()
        return live

    def resume(self, session_id: str) -> LiveSession:
        """Resume recording a stored session. A session that is already live here is returned unchanged.

        Records in the spool of a dead process are recovered first. An unfinished turn ends as interrupted. If
        another thread resumes the session at the moment, both get the same; if one finishes it, it is resumed then.

        Raises:
            SnapshotNotFound: there is no such session.
            SessionLocked: another process owns it, or another thread has not finished it in time.
            StoreUnavailable: the disk refused the lease, or the store cannot be read.
            InvalidInput: the process is ending, and starts no more sessions.
        """
        with self._alone(session_id):
            if live := self.open.get(session_id):
                return live
            self._must_not_be_refused(session_id)
            return self._resume(session_id)

    def _must_not_be_refused(self, session_id: str) -> None:
        if self.refused:
            raise InvalidInput(self.refused, session_id=session_id, hint="start it in another process")

    def _resume(self, session_id: str) -> LiveSession:
        live = LiveSession(session_id, self._context)
        try:
            stored = live.take() or self.store.read(session_id)
            live.continue_from(stored, self._reducer(stored.snapshot))
        except BaseException:
            live.release()
            raise
        live.interrupt("the client hung up")
        self.open[session_id] = live
        return live

    def finish(self, session_id: str, *, save: bool = True) -> Outcome:
        """Save a session for the last time and release it; ``not_live`` if it is not live here."""
        try:
            with self._alone(session_id):
                live = self.open.pop(session_id, None)
                return live.close(save=save) if live else Outcome(session_id=session_id, status="not_live")
        except _StillBusy:
            return Outcome.timed_out(session_id, self.patience)

    @contextlib.contextmanager
    def _alone(self, session_id: str) -> Iterator[None]:
        """Begin, resume and finish a session in one thread at a time."""
        with self._free:
            if not self._free.wait_for(lambda: session_id not in self._busy, self.patience):
                what = f"session {session_id!r} is still being opened or closed by another thread"
                raise _StillBusy(what, session_id=session_id, hint="try again")
            self._busy.add(session_id)
        try:
            yield
        finally:
            with self._free:
                self._busy.discard(session_id)
                self._free.notify_all()

    def close(self) -> Sequence[Outcome]:
        """Finish every session and end the background threads."""
        outcomes = [self.finish(session_id) for session_id in tuple(self.open)]
        self.stop()
        return outcomes

    def stop(self) -> None:
        """End the background threads. Afterwards only calls of `LiveSession.save` save a session."""
        self.is_stopped = True
        self._saves.stop()
        self._flushes.stop()

    def flush(self) -> None:
        """Flush every session: what was recorded before the call survives a power cut."""
        for live in tuple(self.open.values()):
            live.flush()

    # Reading and deleting --------------------------------------------------------------------------------

    def newest(self, session_id: str) -> Spooled:
        """A session as it is now, live here or elsewhere, or stored. See `with_spool` for what it raises."""
        context, live = self._context, self.open.get(session_id)
        if live is None:
            return with_spool(self.store, context.place, session_id, now=self.clock(), more=context.reducers)
        live.save()  # if the store refuses, the session is still returned as it is
        snapshot, ref = live.snapshot(), live.ref
        return Spooled(snapshot, ref.seq if ref else 0, len(snapshot.messages), 0)

    def has(self, session_id: str) -> bool:
        """Whether there is such a session, live here or stored."""
        with contextlib.suppress(SnapshotNotFound, InvalidInput):
            return session_id in self.open or bool(self.store.history(session_id))
        return False

    def list(self) -> Sequence[SnapshotMeta]:
        """The newest snapshot of every session, the live ones as they are now."""
        for live in tuple(self.open.values()):
            live.save()
        return self.store.list()

    def delete(self, session_id: str, labels: Mapping[str, str] | None = None) -> Trashed | None:
        """Move a session to the trash; None if there is none. A session that is live here is closed first.

        Args:
            session_id: the session.
            labels: saved with the session, so that they can be read in the trash.

        Raises:
            SessionLocked: another process owns it; nothing was deleted.
        """
        self.finish(session_id, save=False)
        place = self._context.place
        owner = place.owner(session_id) if place else None
        if owner is not None:
            raise SessionLocked(
                f"session {session_id!r} is live: it belongs to {owner}", session_id=session_id,
                hint="end that process first, then delete the session",
            )  # fmt: skip
        with contextlib.suppress(SnapshotNotFound, InvalidInput):
            if labels:
                stored = self.store.read(session_id)
                self.store.save(stored.snapshot, trigger="delete", base=stored.ref.seq, labels=labels)
            return self.store.delete(session_id)
        return None
