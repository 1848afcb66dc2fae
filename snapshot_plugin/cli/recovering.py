"""Recover killed sessions before a command reads sessions.

Lists, searches and exports then include output that was only in a spool. Costs one look at each session's
directory if nothing was left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio.to_thread

from snapshot_plugin.cli.call import Call
from snapshot_plugin.operations.text import plain, several

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["left_behind", "recover_first"]


async def recover_first(call: Call, store: SnapshotStore) -> None:
    """Recover what can be recovered, and say so. The rest is left for ``asnap recover`` to explain."""
    if not await left_behind(store):
        return

    from snapshot_plugin.live.recovery import recover

    for found in await recover(store, now=call.now):
        if found.ref:
            changes = several(found.records, "update")
            call.out.note(f"session {plain(found.session_id)} ended unexpectedly; {changes} recovered", fg="yellow")
        elif found.problem:
            call.out.detail(f"session {plain(found.session_id)} not recovered: {plain(found.problem)}")


async def left_behind(store: SnapshotStore) -> Sequence[str]:
    """Return the sessions whose process was killed and that were not recovered yet."""
    from snapshot_plugin.live.owners import abandoned

    root = getattr(store, "path", None)
    return await anyio.to_thread.run_sync(lambda: abandoned(root) if root else _elsewhere(store))


def _elsewhere(store: SnapshotStore) -> Sequence[str]:
    from snapshot_plugin.live.place import place_of

    place = place_of(store) if store.capabilities.live else None
    return place.abandoned() if place else ()
