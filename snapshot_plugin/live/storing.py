"""How a live session is kept: its lease and spool (`LeasedSpool`), its snapshots (`store_snapshot`).

If the disk refuses the lease, taking it is retried. A spool with a gap would be recovered as a wrong conversation,
so after a refused write nothing more is spooled until a snapshot holds the missing records. Snapshots are stored
even if another process wrote, deleted or damaged the session.

Everything here is synchronous and may block. Event loops call it in a worker thread, in one hop.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from snapshot_plugin.errors import Conflict, Damaged, Fenced, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.label import apply_label, carried_over, label_of
from snapshot_plugin.live.ports import ExpiringHold, Hold, LiveContext, LivePlace
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.system import forks

if TYPE_CHECKING:
    from snapshot_plugin.store.sync import SyncStore

__all__ = ["LeasedSpool", "Mark", "NewestSave", "store_snapshot"]

Fields = Mapping[str, Any]
_MOST_LATE = 10_000
"""How many refused records are kept in memory, to append them once a save has closed the gap."""
_MOST_REMEMBERED = 1000
"""How many of its own snapshots a session recognizes after a rollback of the store."""


class Mark(NamedTuple):
    """A position in a session's records. A snapshot taken at the same moment contains all records up to it."""

    upto: int
    """The number of the newest record."""
    refused: int
    """How many records the spool did not take."""


class LeasedSpool:
    """The lease and spool of one session, or neither yet. Hold `lock` to append, to `refuse`, and for `mark`.

    Args:
        session_id: the session.
        context: where leases and spools are kept, and the owner to name in the lease.
        overtaken: called once, from any thread, when another owner has taken the session over.
        rolled_back: called, from any thread, when the place lost what it had acknowledged.
    """

    def __init__(
        self,
        session_id: str,
        context: LiveContext,
        overtaken: Callable[[], None],
        rolled_back: Callable[[], None] = lambda: None,
    ) -> None:
        self.hold: Hold | None = None
        """The lease and the spool; None while this process does not have them."""
        self._expiring: ExpiringHold | None = None
        """`hold`, if its lease can end while it is held."""
        self.saved: deque[tuple[int, str]] = deque(maxlen=_MOST_REMEMBERED)
        """Number and root of the newest snapshots that the session saved or continued from."""
        self.lock = forks.rlock()
        """Guards the order of appends. Never held during a sync or a save."""
        self.refused = self.made_good = 0
        """How many records the spool did not take, and how many of them a snapshot holds."""
        self._late: list[Fields | None] = []
        """The most recent refused records; None for a change that is not a record."""
        self.was_fenced = False
        """Whether the session was deleted, or another process took it over, since the last save."""
        self.fenced: Fenced | None = None
        """Why the lease is not taken again: another process took the session over."""
        self._session_id, self._context = session_id, context
        self._on_overtaken, self._rolled_back = overtaken, rolled_back
        self._swapping = forks.lock()
        self._upto = 0
        self._moved: tuple[Mark | None, Mark] = (None, Mark(0, 0))
        """The position at which the lease was last taken again, in the old spool and in the new one."""

    @property
    def is_whole(self) -> bool:
        """Whether the spool is held and has no gap."""
        return self.hold is not None and self.refused == self.made_good

    @property
    def seconds_left(self) -> float:
        """For how long no other owner can take the session; infinite where leases do not expire."""
        return math.inf if self._expiring is None else self._expiring.seconds_left()

    @property
    def may_be_shown(self) -> bool:
        """Whether output that was just recorded may be passed on.

        Where leases do not expire, always: a session that the disk refuses continues, and its client is told.
        Elsewhere the place must have it, and the lease must be ours: another owner would not know what was shown.
        """
        if self._expiring is None:
            return self.fenced is None
        return self.is_whole and self._expiring.seconds_left() > 0

    @property
    def mark(self) -> Mark:
        """The current position in the records."""
        return Mark(self.hold.last if self.hold else self._upto, self.refused)

    def take(self) -> Hold | None:
        """Take the lease and the spool; None if they are held, or the store has no place for them. See `use`.

        If the session was deleted, or another owner had it, the lease is taken again.

        Raises:
            SessionLocked: another process owns the session.
            Fenced: another process took it over from this one.
            StoreUnavailable: the disk refused; the caller may retry.
        """
        if self.fenced is not None:
            raise self.fenced
        place = self._context.place
        if place is None:
            return None
        if self.hold is None:
            return self._take_from(place)
        self._take_again(place, self.hold)
        return None

    def _take_from(self, place: LivePlace) -> Hold:
        return place.take(self._session_id, self._context.owner())

    def use(self, hold: Hold) -> None:
        """Spool to *hold* from now on. Records that a dead owner left in it are already recovered."""
        self.hold, self._upto = hold, hold.last
        hold.watch(self._overtaken)
        self._expiring = hold if isinstance(hold, ExpiringHold) else None
        if self._expiring is not None:
            self._expiring.watch_rollback(self._rolled_back)

    def _overtaken(self) -> None:
        text = f"another process took session {self._session_id!r} over"
        self.fenced = Fenced(text, session_id=self._session_id)
        self._on_overtaken()

    def _take_again(self, place: LivePlace, old: Hold) -> None:
        """Take a new lease if the session was deleted, or another owner had it."""
        if not old.is_fenced:
            return
        if self.fenced is not None:  # the check found another owner
            raise self.fenced
        new = self._take_from(place)
        with self.lock:
            before = self.mark
            self.use(new)
            self.was_fenced = True
            self.refuse((None,))  # the records in the old spool are not in the new one
            self._moved = (before, self.mark)
        old.release()

    def current(self, mark: Mark) -> Mark:
        """*mark* in the spool that is held now: the same position, if the lease was taken again just after it."""
        before, after = self._moved
        return after if mark == before else mark

    def refuse(self, records: Sequence[Fields | None]) -> None:
        """Count records that the spool did not take. Until a snapshot holds them, nothing more is appended."""
        self.refused += len(records)
        self._late += records
        if len(self._late) > _MOST_LATE:
            self._late.clear()

    def is_sole_owner(self, *, has_saved: bool) -> bool:
        """Whether no other process can own the session. Without leases, it must have been saved here before."""
        if self._context.place is not None:
            return self.hold is not None
        # Without leases, on several machines, a rename cannot be distinguished from a second owner.
        return has_saved and not self._context.shared

    def flush(self) -> bool:
        """Make the spooled records survive a power cut; False without a spool.

        Raises:
            SnapshotError: the disk refused. `Fenced`: the spool file with the last records was deleted.
        """
        hold = self.hold
        if hold is None:
            return False
        try:
            hold.flush()
        except SnapshotError:
            if self.hold is hold:
                raise
        return True  # or the hold was released meanwhile, which flushes

    def drop(self, taken: Mark) -> None:
        """Drop the records that a stored snapshot, taken at *taken*, contains.

        Then append the records that were refused while the snapshot was stored, to close the gap.

        Raises:
            SnapshotError: the spool refused. No harm: recovery skips records that the snapshot contains.
        """
        self._upto = taken.upto
        hold = self.hold
        if hold is None:
            self.made_good = taken.refused
            return
        hold.truncate(taken.upto)
        with self.lock:
            self.made_good = taken.refused
            since = self.refused - taken.refused
            late = [record for record in self._late[len(self._late) - since :] if record is not None]
            if since and len(late) == since:
                hold.append(late)
                self.made_good = self.refused
            self._late = self._late[len(self._late) - since :] if self.made_good < self.refused else []

    def fence(self, error: Fenced) -> None:
        """Hand the session back because another process took it over, and refuse to take it again."""
        self.fenced = error
        self.hand_back()

    def hand_back(self) -> None:
        """Release the lease as if it had not been taken: a previous dead owner is still reported as dead."""
        if hold := self._without_hold():
            hold.hand_back()

    def release(self) -> None:
        """Release the lease as properly stopped. Records stay in the spool."""
        if hold := self._without_hold():
            hold.release()

    def _without_hold(self) -> Hold | None:
        with self._swapping:
            hold, self.hold, self._expiring = self.hold, None, None
        return hold


class NewestSave(NamedTuple):
    """The newest snapshot that a live session saved, or continued from."""

    ref: SnapshotRef
    snapshot: SessionSnapshot
    foreign_label: Fields | None = None
    """The label fields that another writer changed. The snapshot has them, and the session must keep them."""


def store_snapshot(
    store: SyncStore, snapshot: SessionSnapshot, before: NewestSave | None, spool: LeasedSpool, **options: Any
) -> NewestSave:
    """Store *snapshot* as the session's newest.

    Args:
        store: where to.
        snapshot: the session as it is now.
        before: the session's last save; the snapshot is stored on top of it.
        spool: the session's spool. A sole owner also saves on top of a snapshot that another process wrote.
        options: passed to `SnapshotStore.save`.

    Raises:
        Fenced: another process took the session over. The spool is fenced.
        Conflict: another writer saved it, and may be a second owner.
        SnapshotError: it was not stored.
    """
    saved = _stored(store, snapshot, before, spool, options)
    spool.saved.append((saved.ref.seq, saved.ref.root))
    return saved


def _stored(
    store: SyncStore, snapshot: SessionSnapshot, before: NewestSave | None, spool: LeasedSpool, options: Fields
) -> NewestSave:
    was_fenced = spool.was_fenced
    if not was_fenced:
        try:
            return NewestSave(store.save(snapshot, **options, base=before.ref.seq if before else None), snapshot)
        except Conflict:
            if not spool.is_sole_owner(has_saved=before is not None):
                raise
    try:
        saved = _stored_on_top(store, snapshot, before, spool, options)
    except Fenced as error:
        if was_fenced:
            spool.fence(error)
        raise
    spool.was_fenced = False
    return saved


def _stored_on_top(
    store: SyncStore, snapshot: SessionSnapshot, before: NewestSave | None, spool: LeasedSpool, options: Fields
) -> NewestSave:
    session_id, foreign = snapshot.session_id, {}
    try:
        head = store.read(session_id)
    except SnapshotNotFound:
        base, notice = 0, "it was deleted while it was live, and was saved again from memory"
    except Damaged as error:
        base, notice = 0, f"nothing stored of it is whole ({error.message}); a full snapshot was written"
    else:
        base = head.ref.seq
        if spool.was_fenced:
            raise Fenced(
                f"another process took session {session_id!r} over and saved it as snapshot {base}",
                session_id=session_id,
            )
        if (base, head.ref.root) in spool.saved:
            notice = f"the store was rolled back to snapshot {base}; saved on top of it from memory"
        else:
            notice = f"snapshot {base} is by another writer; saved on top of it"
            foreign = _label_changes(before, head.snapshot, snapshot)
            snapshot = apply_label(snapshot, foreign)
    ref = store.save(snapshot, **options, base=base)
    return NewestSave(replace(ref, notices=(*ref.notices, notice)), snapshot, foreign)


def _label_changes(before: NewestSave | None, theirs: SessionSnapshot, ours: SessionSnapshot) -> dict[str, Any]:
    """The label fields that another writer changed since *before*."""
    if before is None:
        return carried_over(theirs, ours)
    old = label_of(before.snapshot)
    return {name: value for name, value in label_of(theirs).items() if value != old[name]}
