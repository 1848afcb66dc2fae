"""Where a live session is kept: its snapshots (`Storing`), its lease and spool (`LeasedSpool`).

Snapshots are stored also after another process wrote, deleted or damaged what is there. The lease is taken when the
disk lets us. A spool with a gap would be recovered as a conversation that never was. So after a refused write
nothing more is spooled until a snapshot holds what is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import methodcaller
from typing import Any, NamedTuple

from snapshot_plugin.errors import Conflict, Damaged, Fenced, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.label import apply_label, carried_over, label_of
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.ports import Hold, LivePlace
from snapshot_plugin.live.recovery import Recovered
from snapshot_plugin.live.steps import Blocking, Steps, StoreCall
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["LeasedSpool", "Mark", "Storing"]

Fields = Mapping[str, Any]


class Storing:
    """Stores one session's snapshots, each on top of the last. Used by one thread or task at a time.

    Args:
        session_id: the session.
        spool: its lease decides whether a foreign write may be saved on top of.
        keep_label: called with the labels that another writer changed, so that the session keeps them.
        shared: other machines may write to the store. Without a lease, what they wrote is then a `Conflict`.
    """

    def __init__(
        self, session_id: str, spool: LeasedSpool, keep_label: Callable[[Fields], None], *, shared: bool = False
    ) -> None:
        self.ref: SnapshotRef | None = None
        """The newest snapshot this object stored or continued from."""
        self._session_id = session_id
        self._spool = spool
        self._keep_label = keep_label
        self._shared = shared
        self._restored: SessionSnapshot | None = None
        self._saved_label: Fields | None = None
        self._overlay: Fields = {}
        self._saved_overlay: Fields = self._overlay

    @property
    def is_overlay_saved(self) -> bool:
        """Whether the newest snapshot carries everything that was laid over."""
        return self._overlay is self._saved_overlay

    def continue_from(self, stored: StoredSnapshot, *, keep_label: bool) -> None:
        """The session is now as *stored*. With *keep_label*, a source without labels keeps the stored ones."""
        self.ref, self._saved_label = stored.ref, label_of(stored.snapshot)
        self._restored = stored.snapshot if keep_label else None

    def lay_over(self, fields: Fields) -> None:
        """Have every snapshot carry *fields* (labels, the current task) from now on."""
        self._overlay = {**self._overlay, **fields}

    def storing(self, snapshot: SessionSnapshot, **options: Any) -> Steps[SnapshotRef]:
        """Make *snapshot* the newest; *options* are those of `SnapshotStore.save`.

        Raises:
            Fenced: another process took the session over.
            Conflict: another writer saved it, and nothing tells whether that is a second owner.
            SnapshotError: it was not stored.
        """
        if self._restored is not None:
            self._overlay = {**carried_over(self._restored, snapshot), **self._overlay}
            self._restored = None
        overlay = self._overlay
        stored = _laid_over(snapshot, overlay)
        was_fenced = yield from self._spool.taking_again()
        ref = None if was_fenced else (yield from self._storing_in_order(stored, options))
        if ref is None:
            ref, stored = yield from self._storing_on_top(stored, options, was_fenced=was_fenced)
        self.ref, self._saved_label, self._saved_overlay = ref, label_of(stored), overlay
        return ref

    def _storing_in_order(self, snapshot: SessionSnapshot, options: Fields) -> Steps[SnapshotRef | None]:
        """Store it on top of our last one; None if another writer came first and we own the session."""
        base = self.ref.seq if self.ref else None
        try:
            ref: SnapshotRef = yield StoreCall("save", (snapshot,), {**options, "base": base})
        except Conflict:
            # Without leases a rename cannot be told from a second owner, who would be on another machine.
            has_no_leases = self._spool.place is None and not self._shared
            if self._spool.hold is not None or (has_no_leases and base is not None):
                return None
            raise
        return ref

    def _storing_on_top(
        self, snapshot: SessionSnapshot, options: Fields, *, was_fenced: bool
    ) -> Steps[tuple[SnapshotRef, SessionSnapshot]]:
        try:
            head: StoredSnapshot = yield StoreCall("read", (self._session_id,))
        except SnapshotNotFound:
            base, notice = 0, "it was deleted while it was live, and was saved again from memory"
        except Damaged as error:
            base, notice = 0, f"nothing stored of it is whole ({error.message}); a full snapshot was written"
        else:
            if was_fenced:
                raise self._taken_over(head.ref)
            base, notice = head.ref.seq, f"snapshot {head.ref.seq} is by another writer; saved on top of it"
            snapshot = self._with_foreign_label(snapshot, head.snapshot)
        ref: SnapshotRef = yield StoreCall("save", (snapshot,), {**options, "base": base})
        return replace(ref, notices=(*ref.notices, notice)), snapshot

    def _taken_over(self, head: SnapshotRef) -> Fenced:
        error = Fenced(
            f"another process took session {self._session_id!r} over and saved it as snapshot {head.seq}",
            session_id=self._session_id,
        )
        self._spool.fence(error)
        return error

    def _with_foreign_label(self, ours: SessionSnapshot, theirs: SessionSnapshot) -> SessionSnapshot:
        """*ours* with what the other writer changed of the label."""
        before = self._saved_label
        if before is None:
            foreign = carried_over(theirs, ours)
        else:
            foreign = {name: value for name, value in label_of(theirs).items() if value != before[name]}
        if foreign:
            self._keep_label(foreign)
        return apply_label(ours, foreign)


def _laid_over(snapshot: SessionSnapshot, overlay: Fields) -> SessionSnapshot:
    labelled = apply_label(snapshot, overlay)
    if overlay.get("current_task", snapshot.current_task) == snapshot.current_task:
        return labelled
    return labelled.evolve(current_task=overlay["current_task"])


class Mark(NamedTuple):
    """How far a session's records had come at one moment. A snapshot taken then contains all of them."""

    upto: int
    """The number of the newest record."""
    refused: int
    """How many records the spool did not take."""


class LeasedSpool:
    """The lease and spool of one session, or neither yet. The caller serializes appends with `mark` and `gap`.

    Args:
        session_id: the session.
        place: where leases and spools are; None: this store has no such place.
        owner: what the lease says about this process.
        recover: turns what a dead owner left in the hold into a snapshot.
    """

    def __init__(
        self,
        session_id: str,
        place: LivePlace | None,
        owner: Callable[[], Owner],
        recover: Callable[[Hold], Steps[Recovered | None]],
    ) -> None:
        self.place = place
        self.hold: Hold | None = None
        """The lease and the spool; None while this process does not have them."""
        self.refused = self.made_good = 0
        """How many records the spool did not take, and how many of them a snapshot holds."""
        self.overtaken: Callable[[], None] = lambda: None
        """Called once, from any thread, when another owner is found to have taken the session over."""
        self._session_id = session_id
        self._owner = owner
        self._recover = recover
        self._fenced: Fenced | None = None
        self._swapping = threading.Lock()
        self._upto = 0

    @property
    def is_whole(self) -> bool:
        """Whether the spool is there and has no gap."""
        return self.hold is not None and self.refused == self.made_good

    @property
    def epoch(self) -> int:
        """The lease's fencing number; 0 without a lease."""
        return self.hold.epoch if self.hold else 0

    @property
    def mark(self) -> Mark:
        """How far the records have come."""
        return Mark(self.hold.last if self.hold else self._upto, self.refused)

    def taking(self) -> Steps[Recovered | None]:
        """Take the lease and recover what a dead owner left. Does nothing when it is held, or has no place.

        Raises:
            SessionLocked: another process owns the session.
            Fenced: another process took it over from this one.
            StoreUnavailable: the disk refused; may be tried again.
        """
        if self._fenced is not None:
            raise self._fenced
        if self.place is None or self.hold is not None:
            return None
        hold: Hold = yield Blocking(self.place.take, (self._session_id, self._owner()), methodcaller("hand_back"))
        try:
            recovered = yield from self._recover(hold)
        except BaseException:
            hold.hand_back()
            raise
        self.hold, self._upto = hold, hold.last
        hold.watch(self.overtaken)
        return recovered

    def gap(self, records: int = 1) -> None:
        """So many records are not spooled: spool nothing until a snapshot holds them."""
        self.refused += records

    def flushing(self) -> Steps[bool]:
        """Make what was spooled survive a power cut; False without a spool.

        Raises:
            SnapshotError: the disk refused. `Fenced`: what was spooled last is in a file that is gone.
        """
        hold = self.hold
        if hold is None:
            return False
        try:
            yield Blocking(hold.flush)
        except SnapshotError:
            if self.hold is hold:
                raise
        return True  # or it was given up meanwhile, and flushed then

    def dropping(self, taken: Mark) -> Steps[None]:
        """Drop the records that a stored snapshot, taken at *taken*, contains.

        Raises:
            SnapshotError: the spool refused; that costs nothing, because recovery knows the number too.
        """
        self._upto = taken.upto
        if self.hold is not None:
            yield Blocking(self.hold.truncate, (taken.upto,))
        self.made_good = taken.refused

    def taking_again(self) -> Steps[bool]:
        """If the session was deleted, or another owner has it, take a new lease; whether it was so.

        Raises:
            SessionLocked: another process has the session now.
        """
        old = self.hold
        if old is None or self.place is None or not (yield Blocking(lambda: old.is_fenced)):
            return False
        self.hold = yield Blocking(self.place.take, (self._session_id, self._owner()), methodcaller("hand_back"))
        self.hold.watch(self.overtaken)
        self.gap()  # what was appended to the old spool is in no spool now
        yield Blocking(old.release)
        return True

    def fence(self, error: Fenced) -> None:
        """Another process has the session now: give it back as it is, and refuse to take it again."""
        self._fenced = error
        hold = self._swap_out()
        if hold is not None:
            hold.hand_back()

    def release(self) -> None:
        """Give the lease up as properly stopped. Records stay in the spool."""
        hold = self._swap_out()
        if hold is not None:
            hold.release()

    def _swap_out(self) -> Hold | None:
        with self._swapping:
            hold, self.hold = self.hold, None
        return hold
