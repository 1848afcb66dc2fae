"""Read a live or abandoned session without changing it: its snapshot plus what is only in its spool."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from snapshot_plugin.errors import SnapshotError

if TYPE_CHECKING:
    from snapshot_plugin.live.recovery import Spooled
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["spool_mark", "spooled"]


def spool_mark(store: SnapshotStore, session_id: str) -> tuple[int, ...]:
    """Return a value that changes whenever the spool does; empty if there is no spool."""
    from snapshot_plugin.live.place import place_of

    place = place_of(store) if store.capabilities.live else None
    return place.spool_mark(session_id) if place else ()


def spooled(store: SnapshotStore, session_id: str) -> Spooled | None:
    """The session with its spool applied; None if the spool adds nothing, or cannot be applied. Changes nothing."""
    from snapshot_plugin.live.place import place_of
    from snapshot_plugin.live.recovery import with_spool

    if not spool_mark(store, session_id):
        return None
    try:
        found = with_spool(store.sync, place_of(store), session_id, now=datetime.now(UTC), more={})
    except SnapshotError:  # asnap recover explains what cannot be applied
        return None
    return found if found.records else None
