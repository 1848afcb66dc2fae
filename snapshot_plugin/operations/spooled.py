"""A read-only look at a session that is live, or whose process died: its snapshot and what is only in its spool."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from snapshot_plugin.errors import SnapshotError, SnapshotNotFound

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Spooled", "spool_mark", "spooled"]


class Spooled(NamedTuple):
    """A session as its process knows it."""

    snapshot: SessionSnapshot
    seq: int
    """The newest snapshot that is stored; 0 if there is none yet."""
    saved: int
    """How many of its messages that snapshot holds."""


def spool_mark(store: SnapshotStore, session_id: str) -> tuple[int, int]:
    """Changes whenever the spool does; zeros where there is none."""
    directory = _directory(store, session_id)
    try:
        about = (directory / "live").stat() if directory else None
    except OSError:
        about = None
    return (about.st_size, about.st_mtime_ns) if about else (0, 0)


def spooled(store: SnapshotStore, session_id: str) -> Spooled | None:
    """The session with its spool applied; None if the spool adds nothing, or cannot be applied. Changes nothing."""
    from snapshot_plugin.live.recovery import reduced, upto_of
    from snapshot_plugin.live.spool import read_spool
    from snapshot_plugin.model.snapshot import SessionSnapshot

    directory = _directory(store, session_id)
    if directory is None or spool_mark(store, session_id) == (0, 0):
        return None
    try:
        stored = store.sync.read(session_id)
        head, seq = stored.snapshot, stored.ref.seq
    except SnapshotNotFound:
        now = datetime.now(UTC)
        head, seq = SessionSnapshot(session_id=session_id, created_at=now, updated_at=now), 0
    keys = getattr(store, "session_keys", lambda _session_id: None)(session_id)
    try:
        records = read_spool(directory, session_id=session_id, keys=keys).records
        new = [record for record in records if record.n > upto_of(head)]
        snapshot = reduced(head, new) if new else None
    except SnapshotError:  # what cannot be applied is for asnap recover to explain
        return None
    return Spooled(snapshot, seq, len(head.messages) if seq else 0) if snapshot else None


def _directory(store: SnapshotStore, session_id: str) -> Path | None:
    from snapshot_plugin.model.ids import dirname_of

    root = getattr(store, "path", None)  # only a store on this disk has spools that can be read
    return Path(root) / "sessions" / dirname_of(session_id) if root else None
