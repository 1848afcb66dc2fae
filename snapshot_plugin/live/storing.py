"""Storing the snapshots of a live session, also after another process wrote, deleted or damaged what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from snapshot_plugin.errors import Conflict, Damaged, Fenced, SnapshotNotFound
from snapshot_plugin.live.label import apply_label, carried_over, label_of
from snapshot_plugin.live.leased_spool import LeasedSpool
from snapshot_plugin.live.steps import Steps, StoreCall
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["Storing"]

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
            if self._spool.is_held or (has_no_leases and base is not None):
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
