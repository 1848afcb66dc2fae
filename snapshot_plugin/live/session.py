"""One live session: leased, spooled, reduced, saved. Every host records through this class.

How it handles failures:

* **The spool refuses a write.** The session continues. Nothing more is spooled until a snapshot holds the missing
  records; a save is tried soon, and events that arrive during it are spooled after it.
* **The disk refuses the lease.** Every event retries.
* **Another process wrote the session** (a rename, ``migrate``). The save goes on top of that snapshot, keeps the
  labels that were changed in it, and says so in the notices of its ref (`storing`).
* **The session was deleted.** It is stored again from memory, with a new lease and a full snapshot.
* **Another owner has taken it over.** Every save raises `Fenced` and overwrites nothing.
* **The database was rolled back**, and nobody has taken the session since. It is saved again from memory.
* **Every stored snapshot is damaged.** A full snapshot is written from memory.
* **The last save fails.** The spool stays, and the outcome says ``failed``.

Everything is synchronous and may block; event loops call it in a worker thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

from snapshot_plugin.errors import Fenced, InvalidInput, SnapshotError, StoreUnavailable
from snapshot_plugin.live.label import typed_label
from snapshot_plugin.live.outcome import Outcome
from snapshot_plugin.live.ports import Hold, LiveContext, Reducer
from snapshot_plugin.live.recovery import recover_hold
from snapshot_plugin.live.storing import LeasedSpool, Mark, NewestSave, store_snapshot
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot, upto_of, with_upto
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.base import StoredSnapshot
from snapshot_plugin.store.hop import in_thread
from snapshot_plugin.system import forks

__all__ = ["LiveSession", "Mark"]


class LiveSession:
    """A leased session that is being recorded. Any thread may use it.

    Its state is either reduced from the events it records (*reducer*), or passed to `save_snapshot` by the caller;
    then `record` only spools.

    Args:
        session_id: this package's id for the session; it never changes.
        context: what the live sessions of a process share.
        reducer: turns the events into a snapshot.
        keep_label: called with the label fields that another writer changed; default: an event for the reducer.
    """

    def __init__(
        self,
        session_id: str,
        context: LiveContext,
        *,
        reducer: Reducer | None = None,
        keep_label: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.session_id = session_id
        self.trouble: SnapshotError | None = None
        """Why the session is not recorded at the moment; None while it is. The host shows it to its client."""
        self._is_troubled = False
        self.is_behind = False
        """Whether the store lost what it had acknowledged, and nothing was saved since."""
        self._context = context
        self._spool = LeasedSpool(session_id, context, self._overtaken, self._rolled_back)
        self._reducer = reducer
        self._keep_label = keep_label or self._record_label
        self._saved: NewestSave | None = None
        self._lock = self._spool.lock
        """Also keeps spool and reducer in the same order."""
        self._saving, self._taking = forks.lock(), forks.lock()
        self._changes = self._saved_changes = 0
        """How often the session has changed, and how many of these changes a snapshot holds."""
        self._is_scheduled = self._is_closed = False

    def continue_from(self, stored: StoredSnapshot | NewestSave, reducer: Reducer | None = None) -> None:
        """Continue from *stored*: the next save builds on it, and *reducer* starts from it."""
        self._reducer = reducer or self._reducer
        self._saved = NewestSave(stored.ref, stored.snapshot)
        self._spool.saved.append((stored.ref.seq, stored.ref.root))

    # Current state ---------------------------------------------------------------------------------------

    @property
    def hold(self) -> Hold | None:
        """The lease and the spool; None while this process does not have them."""
        return self._spool.hold

    @property
    def is_recorded(self) -> bool:
        """Whether events recorded now survive ``kill -9``: the lease is held, and the spool has no gap."""
        return self._spool.is_whole

    @property
    def may_be_shown(self) -> bool:
        """Whether what was just recorded may be passed on: not if another owner could have the session without it.

        Always true where leases do not expire, as on a disk. Cheap: it compares a clock, and asks nobody.
        """
        return self._spool.may_be_shown

    @property
    def seconds_left(self) -> float:
        """For how long no other owner can take the session; infinite where leases do not expire, as on a disk.

        Before each tool that must not run on two machines, check that this is more than the tool needs to begin.
        """
        return self._spool.seconds_left

    @property
    def running(self) -> bool:
        """Whether a turn is running."""
        return self._reducer is not None and self._reducer.running

    @property
    def ref(self) -> SnapshotRef | None:
        """The newest snapshot this object saved or continued from."""
        return self._saved.ref if self._saved else None

    @property
    def mark(self) -> Mark:
        """The current position in the records."""
        return self._spool.mark

    def snapshot(self) -> SessionSnapshot:
        """The session as recorded so far."""
        with self._lock:
            return self._reduced()

    def _reduced(self) -> SessionSnapshot:
        if self._reducer is None:
            raise InvalidInput("this session is not reduced from events", session_id=self.session_id)
        return self._reducer.snapshot(self._context.clock())

    # The lease -------------------------------------------------------------------------------------------

    def take(self) -> NewestSave | None:
        """Take the lease, unless it is held and valid, and recover a dead owner's records from the spool.

        Returns the newest snapshot with these records, if the lease was taken and there is one.

        Raises:
            SessionLocked: another process owns the session.
            Fenced: another process took it over from this one.
            StoreUnavailable: the disk refused; the caller may retry.
        """
        with self._taking:
            return self._take()

    def _take(self) -> NewestSave | None:
        hold = self._spool.take()
        if hold is None:
            return None
        context = self._context
        try:
            recovered, head = recover_hold(context.store, self.session_id, hold, context.reducers, context.clock())
        except BaseException:
            hold.hand_back()
            raise
        self._spool.use(hold)
        self._untroubled()
        if recovered is not None:
            context.report.recovered(recovered)
        return NewestSave(head.ref, head.snapshot) if head.ref and head.snapshot else None

    def release(self) -> None:
        """Release the lease as properly stopped, without a save. Records stay in the spool."""
        self._spool.release()

    def hand_back(self) -> None:
        """Release the lease as if it had not been taken."""
        self._spool.hand_back()

    def end(self) -> None:
        """Refuse all further saves: one that still waits in a thread must not take the lease again."""
        self._is_closed = True

    def _overtaken(self) -> None:
        text = f"another process took session {self.session_id!r} over"
        self.failed("lease", Fenced(text, session_id=self.session_id))
        self._context.overtaken(self)

    def _rolled_back(self) -> None:
        # No lock is taken: the thread that renews all leases must not wait for one that is recording.
        self.is_behind = True
        text = f"the database was rolled back and lost parts of session {self.session_id!r}; it is saved again"
        self.failed("lease", StoreUnavailable(text, session_id=self.session_id, hint="nothing to do"))
        self._context.touch(self)

    def _catch_up(self) -> None:
        """After a rollback of the store: nothing that it acknowledged counts as saved, or as spooled."""
        if self.is_behind:
            self.is_behind = False
            self.must_be_saved()

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
            self._changes += 1
            if self._reducer is not None:
                for event in batch:
                    self._reducer.apply(event)
                if self._reducer.is_long:
                    self.checkpoint()
        if durable:
            return self.make_durable()
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
        spool.refuse(batch)
        return False

    def _try_to_take(self) -> None:
        """Retry taking the lease, if the events are all there is: other sessions retry before the next save."""
        if self._context.place is None or self._reducer is None or self._is_closed:
            return
        if not self._taking.acquire(blocking=False):
            return  # another thread takes it, and may wait for the lock that this one has
        try:
            self._take()
        except SnapshotError as error:
            if str(error) != str(self.trouble):  # reported once, not at every event
                self.failed("spool", error)
        finally:
            self._taking.release()

    def make_durable(self) -> bool:
        """Make what was recorded survive a power cut: in the spool or, if that has a gap, in a snapshot.

        Returns whether it succeeded. If a flush fails while `is_recorded`, a save is tried soon.
        """
        is_flushed = self.flush()
        if self.is_recorded:
            return is_flushed
        return self.save().status == "saved"

    def flush(self) -> bool:
        """Make what was recorded survive a power cut. Returns whether it succeeded; a failure is reported."""
        try:
            return self._spool.flush()
        except SnapshotError as error:
            if isinstance(error, Fenced):
                self.must_be_saved()  # the spool file with the last records was deleted
            self.failed("spool", error)
            self.checkpoint()
            return False

    def must_be_saved(self) -> None:
        """Note a change that is not in the spool: nothing more is spooled until a snapshot holds it."""
        with self._lock:
            self._spool.refuse((None,))
            self._changes += 1

    def interrupt(self, why: str) -> None:
        """End the running turn without an answer. Does nothing if no turn is running."""
        if self.running:
            self.record({"interrupted": why, "t": self._now()})

    def relabel(self, request: Mapping[str, Any]) -> None:
        """Set the label fields in *request*; every later snapshot carries them.

        Raises:
            InvalidInput: a value has the wrong type. Nothing has changed.
        """
        self._record_label(typed_label(request), durable=True)

    def _record_label(self, label: Mapping[str, Any], *, durable: bool = False) -> None:
        self.record({"label": dict(label), "t": self._now()}, durable=durable)

    def set_current_task(self, task: str | None) -> None:
        """Set what the session is working on; every snapshot carries it until the next call."""
        self.record({"current_task": task or "", "t": self._now()})

    def _now(self) -> str:
        return rfc3339(self._context.clock())

    def failed(self, operation: str, error: SnapshotError) -> None:
        """Report that *operation* failed and the session is not recorded at the moment."""
        self.trouble = error
        self._context.report.failed(self.session_id, operation, error)

    def trouble_changed(self) -> bool:
        """Whether `trouble` began or ended since the last call, so that the host can tell its client."""
        before, self._is_troubled = self._is_troubled, self.trouble is not None
        return before != self._is_troubled

    def _untroubled(self) -> None:
        if self.is_recorded:
            self.trouble = None

    # Saving ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Schedule a save soon, in the background. The spool holds everything until then."""
        if self._changes > self._saved_changes and not self._is_scheduled:
            self._is_scheduled = True
            self._context.touch(self)

    def save(self, trigger: str = "event", tags: Sequence[str] = ()) -> Outcome:
        """As `save_or_raise`, but a failure is returned in the outcome."""
        if self._is_closed:
            return Outcome(session_id=self.session_id, status="not_live")
        try:
            return Outcome.saved(self.save_or_raise(trigger, tags))
        except Exception as error:  # noqa: BLE001 — returned in the outcome
            self._context.report.failed(self.session_id, "save", error)
            return Outcome.failed(self.session_id, error)

    def save_or_raise(self, trigger: str = "event", tags: Sequence[str] = ()) -> SnapshotRef:
        """Save now, in this thread. Concurrent saves are coalesced.

        Raises:
            SnapshotError: it was not saved. The spool keeps everything for the next save.
        """
        self._catch_up()
        wanted = self._changes
        with self._saving:
            self._must_not_be_closed()
            if self._saved_changes >= wanted and not tags and self.ref is not None:
                return self.ref
            started = monotonic()
            self.take()
            with self._lock:
                snapshot, mark, changes = self._reduced(), self.mark, self._changes
            ref = self._store(snapshot, mark, trigger, tuple(tags), started)
            self._saved_changes = changes
            return ref

    def save_snapshot(
        self, snapshot: SessionSnapshot, mark: Mark, trigger: str, tags: Sequence[str] = ()
    ) -> SnapshotRef:
        """Save *snapshot*, which was taken at *mark*, for a session that is not reduced from its events.

        Raises:
            SnapshotError: it was not stored. Nothing has changed.
        """
        with self._saving:
            self._must_not_be_closed()
            started = monotonic()
            self._catch_up()
            self.take()
            return self._store(snapshot, self._spool.current(mark), trigger, tuple(tags), started)

    def _must_not_be_closed(self) -> None:
        if self._is_closed:
            raise SnapshotError(f"session {self.session_id!r} is not live any more", session_id=self.session_id)

    def _store(
        self, snapshot: SessionSnapshot, mark: Mark, trigger: str, tags: tuple[str, ...], started: float
    ) -> SnapshotRef:
        """Store *snapshot*, taken at *mark*, then drop the records it contains."""
        self._is_scheduled = False
        stamped = snapshot if upto_of(snapshot) == mark.upto else with_upto(snapshot, mark.upto)
        context = self._context
        saved = store_snapshot(context.store, stamped, self._saved, self._spool, trigger=trigger, tags=tags)
        self._saved = saved
        if saved.foreign_label:
            self._keep_label(saved.foreign_label)
        try:
            self._spool.drop(mark)
        except SnapshotError as error:  # harmless: recovery skips records that the snapshot contains
            self.failed("spool", error)
        else:
            self._untroubled()
        if saved.ref.written:
            context.report.created(saved.ref, trigger=trigger, tags=tags, duration=monotonic() - started)
        else:
            context.report.skipped(self.session_id, reason="unchanged", trigger=trigger)
        return saved.ref

    async def save_as(self, trigger: str, tags: Sequence[str] = ()) -> Outcome:
        """As `save`, in a worker thread, for event loops."""
        return await in_thread(self.save, trigger, tags)

    def save_scheduled(self) -> bool:
        """Run a scheduled save; returns whether it succeeded. Does nothing if nothing has changed."""
        self._is_scheduled = False
        return self._is_closed or self.save().status == "saved"

    def close(self, trigger: str = "exit", *, save: bool = True) -> Outcome:
        """Save for the last time and release the lease. If that fails, the outcome says what the spool keeps."""
        self._context.forget(self)
        if save and self.hold is not None and self.seconds_left < math.inf:
            _ = self.hold.is_fenced  # the database may have been rolled back, which only a question shows
        outcome = self.save(trigger) if save else Outcome(session_id=self.session_id, status="not_asked")
        if outcome.status == "failed":
            rest = "its spool is kept" if self.is_recorded else "what came after its last save or record is lost"
            outcome = outcome.evolve(problem=f"{outcome.problem}; {rest}")
        with self._saving:
            self._is_closed = True
        self.release()
        return outcome
