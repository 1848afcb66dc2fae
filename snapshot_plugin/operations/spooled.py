"""Read a live or abandoned session without changing it: its snapshot plus what is only in its spool."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from snapshot_plugin.errors import SnapshotError, SnapshotNotFound

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Spooled", "spool_mark", "spooled"]


class Spooled(NamedTuple):
    """A session including its spool."""

    snapshot: SessionSnapshot
    seq: int
    """The newest snapshot that is stored; 0 if there is none yet."""
    saved: int
    """How many of its messages that snapshot holds."""


def spool_mark(store: SnapshotStore, session_id: str) -> tuple[int, ...]:
    """Return a value that changes whenever the spool does; empty if there is no spool."""
    from snapshot_plugin.live.place import place_of

    place = place_of(store) if store.capabilities.live else None
    return place.spool_mark(session_id) if place else ()


def spooled(store: SnapshotStore, session_id: str) -> Spooled | None:
    """The session with its spool applied; None if the spool adds nothing, or cannot be applied. Changes nothing."""
    from snapshot_plugin.live.place import place_of
    from snapshot_plugin.live.recovery import reduced, upto_of
    from snapshot_plugin.model.snapshot import SessionSnapshot

    place = place_of(store) if spool_mark(store, session_id) else None
    if place is None:
        return None
    try:
        stored = store.sync.read(session_id)
        head, seq = stored.snapshot, stored.ref.seq
    except SnapshotNotFound:
        now = datetime.now(UTC)
        head, seq = SessionSnapshot(session_id=session_id, created_at=now, updated_at=now), 0
    try:
        new = [record for record in place.records(session_id) if record.n > upto_of(head)]
        snapshot = reduced(head, new) if new else None
    except SnapshotError:  # asnap recover explains what cannot be applied
        return None
    return Spooled(snapshot, seq, len(head.messages) if seq else 0) if snapshot else None
