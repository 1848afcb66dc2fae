"""One live session: leased, spooled, reduced, saved. Every host records through this class.

What it decides, for all of them:

* **The spool refuses a write.** The session continues. Nothing more is spooled until a snapshot holds what is
  missing; a save is tried soon.
* **The disk refuses the lease.** Taking it is tried again at every event.
* **Another process wrote the session** (a rename, ``migrate``). The save goes on top of that snapshot, keeps the
  labels that were changed in it, and says so in the notices of its ref.
* **The session was deleted.** It is begun anew from memory: a new lease, a full snapshot.
* **Another owner has taken it over.** Every save raises `Fenced`; nothing of theirs is overwritten.
* **Nothing stored is whole.** A full snapshot is written from memory.
* **The last save fails.** The spool stays, and the outcome says ``failed``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

from snapshot_plugin.errors import Fenced, InvalidInput, SnapshotError, StoreUnavailable
from snapshot_plugin.live.label import typed_label
from snapshot_plugin.live.outcome import Outcome
from snapshot_plugin.live.ports import Hold, LiveContext, Reducer
from snapshot_plugin.live.recovery import Recovered, recover_hold, upto_of, with_upto
from snapshot_plugin.live.schedule import Schedule
from snapshot_plugin.live.steps import Steps, StoreMethods, run
from snapshot_plugin.live.storing import LeasedSpool, Mark, Storing
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.base import StoredSnapshot
from snapshot_plugin.store.hop import in_thread

__all__ = ["LiveSession", "Mark"]


class LiveSession:
    """A leased session that is being recorded. Any thread may use it.

    Its state is either reduced from the events it records (*reducer*), or taken from an object of the author and
    given to `saving`; `record` then only spools.

    Args:
        session_id: ours, stable for ever.
        context: what it shares with others.
        reducer: makes the snapshot of the events.
    """

    def __init__(self, session_id: str, context: LiveContext, *, reducer: Reducer | None = None) -> None:
        self.session_id = session_id
        self.schedule = Schedule(now=monotonic())
        self.trouble: SnapshotError | None = None
        """Why the session is not recorded at the moment; None while it is. Meant for the host's client."""
        self._context = context
        self._spool = LeasedSpool(session_id, context.place, context.owner, self._recovering)
        self._spool.overtaken = self._overtaken
        self._stored = Storing(session_id, self._spool, self._keep_label, shared=context.shared)
        self._reducer = reducer
        self._lock = threading.Lock()
        """Guards the order of spool and reducer. Never held during a sync or a save."""
        self._saving = threading.Lock()
        self._requested = self._covered = 0
        self._is_dirty = self._is_scheduled = self._is_closed = False

    def continue_from(self, stored: StoredSnapshot, reducer: Reducer | None = None) -> None:
        """The session is now as *stored*: saves build on it and keep its label; *reducer* continues from it."""
        self._reducer = reducer or self._reducer
        self._stored.continue_from(stored, keep_label=self._reducer is None)

    # What it is now --------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The fencing number of its lease; 0 while it has none."""
        return self._spool.epoch

    @property
    def is_held(self) -> bool:
        """Whether this process has the session's lease."""
        return self._spool.hold is not None

    @property
    def is_recorded(self) -> bool:
        """Whether what is recorded now survives ``kill -9``: leased, and the spool without a gap."""
        return self._spool.is_whole

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return self._reducer is not None and self._reducer.running

    @property
    def ref(self) -> SnapshotRef | None:
        """The newest snapshot this object saved or continued from."""
        return self._stored.ref

    @property
    def mark(self) -> Mark:
        """How far the records have come."""
        return self._spool.mark

    @property
    def is_overlay_saved(self) -> bool:
        """Whether the newest snapshot carries what `relabel` and `set_current_task` gave it (without a reducer)."""
        return self._stored.is_overlay_saved

    def snapshot(self) -> SessionSnapshot:
        """The session as recorded so far."""
        with self._lock:
            return self._reduced()

    def _reduced(self) -> SessionSnapshot:
        if self._reducer is None:
            raise InvalidInput("this session is not reduced from events", session_id=self.session_id)
        return self._reducer.snapshot(self._context.clock())

    # Taking and giving up --------------------------------------------------------------------------------

    def taking(self) -> Steps[None]:
        """Take the lease, unless it is held, and recover what a dead owner left in the spool.

        Raises:
            SessionLocked: another process owns the session.
            Fenced: another process took it over from this one.
            StoreUnavailable: the disk refused; may be tried again.
        """
        recovered = yield from self._spool.taking()
        if recovered is not None:
            self._context.reports.recovered(recovered)
        self._untroubled()

    def _recovering(self, hold: Hold) -> Steps[Recovered | None]:
        return recover_hold(self.session_id, hold, self._context.reducers, self._context.clock())

    def take(self) -> bool:
        """Take the lease now, if it is not held; whether it is. A disk that refuses is reported, not raised.

        Raises:
            SnapshotError: as `taking`, except `StoreUnavailable`.
        """
        try:
            run(self.taking(), self._store)
        except StoreUnavailable as error:
            self.failed("spool", error)
        return self.is_held

    def release(self) -> None:
        """Give the lease up as properly stopped, without a save. Records stay in the spool."""
        self._spool.release()

    @property
    def _store(self) -> StoreMethods:
        if self._context.store is None:
            raise InvalidInput("this session has no synchronous store", session_id=self.session_id)
        return self._context.store

    # Recording --------------------------------------------------------------------------------------------

    def record(self, event: Mapping[str, Any], *, durable: bool = False) -> bool:
        """Spool one event, then reduce it; see `record_all`."""
        return self.record_all((event,), durable=durable)

    def record_all(self, events: Iterable[Mapping[str, Any]], *, durable: bool = False) -> bool:
        """Spool *events* in one write, then reduce them. Call it before the events are passed on.

        Returns whether they survive ``kill -9`` (with *durable*: a power cut) from now on. If not, they are still
        part of the session, a save is tried soon, and `trouble` says why. With *durable*, events that the spool
        cannot take are saved in a snapshot before this returns.

        Raises:
            InvalidInput: an event is not a JSON object. Nothing was recorded.
        """
        batch = tuple(events)
        with self._lock:
            is_spooled = self._spooled(batch)
            self._is_dirty = True
            if self._reducer is not None:
                for event in batch:
                    self._reducer.apply(event)
                if self._reducer.is_long:
                    self.checkpoint()
        if durable:
            return self._made_durable(is_spooled=is_spooled)
        if is_spooled:
            if not self._context.flush_due.is_set():
                self._context.recorded()
        elif self._context.place is not None:
            self.checkpoint()
        return is_spooled

    def _spooled(self, batch: Sequence[Mapping[str, Any]]) -> bool:
        spool = self._spool
        if spool.hold is None:
            self._try_to_take()
        hold = spool.hold
        if hold is not None and spool.refused == spool.made_good:  # `is_whole`, without a call for each chunk
            try:
                hold.append(batch)
            except InvalidInput:
                raise
            except SnapshotError as error:
                self.failed("spool", error)
            else:
                return True
        spool.gap(len(batch))
        return False

    def _try_to_take(self) -> None:
        """Ask the disk again. Only for hosts that call from threads: an event loop asks before the next save."""
        if self._context.place is None or self._context.store is None or self._is_closed:
            return
        try:
            run(self.taking(), self._context.store)
        except SnapshotError as error:
            if str(error) != str(self.trouble):  # told once, not at every event
                self.failed("spool", error)

    def _made_durable(self, *, is_spooled: bool) -> bool:
        if is_spooled and self.flush():
            return True
        if is_spooled and self.is_recorded:
            return False  # the page cache has it, and a save is on its way
        return self._context.store is not None and self.save().status == "saved"

    def flush(self) -> bool:
        """Make what was recorded survive a power cut; whether it does. A disk that refuses is reported."""
        return run(self.flushing(), self._context.store)

    def flushing(self) -> Steps[bool]:
        """`flush`, in steps."""
        try:
            return (yield from self._spool.flushing())
        except SnapshotError as error:
            if isinstance(error, Fenced):
                self.must_be_saved()
            self.failed("spool", error)
            self.checkpoint()
            return False

    def must_be_saved(self) -> None:
        """The session holds something that is in no spool: nothing more is spooled before a snapshot holds it."""
        with self._lock:
            self._spool.gap()
            self._is_dirty = True

    def interrupt(self, why: str) -> None:
        """The turn that is under way ends here, without an answer. Does nothing when none is."""
        if self.running:
            self.record({"interrupted": why, "t": self._now()})

    def relabel(self, request: Mapping[str, Any]) -> None:
        """Give the session the label that *request* names; every snapshot carries it from now on.

        Raises:
            InvalidInput: it is no label. Nothing has changed.
        """
        self._keep_label(typed_label(request), durable=True)

    def set_current_task(self, task: str | None) -> None:
        """Say what the session is working on; every snapshot carries it until the next call."""
        self._keep({"current_task": task or ""}, {"current_task": task})

    def _keep_label(self, label: Mapping[str, Any], *, durable: bool = False) -> None:
        self._keep({"label": dict(label)}, label, durable=durable)

    def _keep(self, event: dict[str, Any], fields: Mapping[str, Any], *, durable: bool = False) -> None:
        """An *event* for the reducer; without one, *fields* laid over every snapshot from now on."""
        if self._reducer is not None:
            self.record({**event, "t": self._now()}, durable=durable)
        else:
            self._stored.lay_over(fields)

    def _now(self) -> str:
        return rfc3339(self._context.clock())

    def failed(self, operation: str, error: SnapshotError) -> None:
        """The session is not recorded at the moment, because *operation* failed."""
        self.trouble = error
        self._context.reports.failed(self.session_id, operation, error)

    def _overtaken(self) -> None:
        owner = f"another process took session {self.session_id!r} over"
        self.failed("lease", Fenced(owner, session_id=self.session_id))
        self._context.overtaken(self)

    def _untroubled(self) -> None:
        if self._spool.is_whole:
            self.trouble = None

    # Saving ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Have a snapshot made soon, in the background. The spool holds everything until then."""
        if self._is_dirty and not self._is_scheduled:
            self._is_scheduled = True
            self._context.touch(self)

    def save(self, trigger: str = "event", tags: Sequence[str] = ()) -> Outcome:
        """`save_or_raise`, but the outcome says what became of it."""
        if self._is_closed:
            return Outcome(session_id=self.session_id, status="not_live")
        try:
            return Outcome.saved(self.save_or_raise(trigger, tags))
        except Exception as error:  # noqa: BLE001 — the outcome says it
            self._context.reports.failed(self.session_id, "save", error)
            return Outcome.failed(self.session_id, error)

    def save_or_raise(self, trigger: str = "event", tags: Sequence[str] = ()) -> SnapshotRef:
        """Save now, in this thread. Concurrent saves are coalesced.

        Raises:
            SnapshotError: it was not saved. Nothing is lost: the spool keeps everything for the next save.
        """
        with self._lock:
            self._requested += 1
            ticket = self._requested
        with self._saving:
            if self._is_closed:
                raise SnapshotError(f"session {self.session_id!r} is not live any more", session_id=self.session_id)
            is_current = self._covered >= ticket or not self._is_dirty
            if is_current and not tags and self.ref is not None:
                return self.ref
            covers = self._requested
            try:
                ref = run(self._saving_now(trigger, tuple(tags)), self._store)
            except BaseException:
                self._is_dirty = True
                raise
            self._covered = covers
            return ref

    async def save_as(self, trigger: str, tags: Sequence[str] = ()) -> Outcome:
        """`save` for event loops: in a worker thread."""
        return await in_thread(self.save, trigger, tags)

    def save_scheduled(self) -> bool:
        """Save because the schedule says so; whether it succeeded. Does nothing if nothing happened since."""
        self._is_scheduled = False
        return self._is_closed or self.save().status == "saved"

    def _saving_now(self, trigger: str, tags: tuple[str, ...]) -> Steps[SnapshotRef]:
        started = monotonic()
        yield from self.taking()
        with self._lock:
            snapshot, mark = self._reduced(), self.mark
            self._is_dirty = False
        ref = yield from self.saving(snapshot, mark, trigger, tags)
        if ref.written:
            self._context.reports.created(ref, trigger=trigger, tags=tags, duration=monotonic() - started)
        else:
            self._context.reports.skipped(self.session_id, reason="unchanged", trigger=trigger)
        return ref

    def saving(
        self, snapshot: SessionSnapshot, mark: Mark, trigger: str, tags: tuple[str, ...]
    ) -> Steps[SnapshotRef]:
        """Store *snapshot*, taken at *mark*, then drop the records it contains. One at a time.

        Raises:
            SnapshotError: it was not stored. Nothing has changed.
        """
        self._is_scheduled = False
        stamped = snapshot if upto_of(snapshot) == mark.upto else with_upto(snapshot, mark.upto)
        ref = yield from self._stored.storing(stamped, trigger=trigger, tags=tags)
        try:
            yield from self._spool.dropping(mark)
        except SnapshotError as error:
            self.failed("spool", error)
        else:
            self._untroubled()
        return ref

    def close(self, trigger: str = "exit", *, save: bool = True) -> Outcome:
        """Save for the last time and give the lease up. A failed save keeps the spool, and the outcome says so."""
        self._context.forget(self)
        outcome = self.save(trigger) if save else Outcome(session_id=self.session_id, status="not_asked")
        with self._saving:
            self._is_closed = True
        self.release()
        return outcome
