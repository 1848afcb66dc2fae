"""Moved to `snapshot_plugin.live.recovery`; the old names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from snapshot_plugin.live.lease import Lease
from snapshot_plugin.live.place import FileHold, FilePlace
from snapshot_plugin.live.ports import LocalStore, PlacedStore
from snapshot_plugin.live.ports import Reduce as Reducer
from snapshot_plugin.live.recovery import (
    Recovered,
    recover,
    recover_hold,
    recover_if_abandoned,
    upto_of,
    with_upto,
)
from snapshot_plugin.live.steps import run_async
from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "LocalStore",
    "PlacedStore",
    "Recovered",
    "Reducer",
    "recover",
    "recover_if_abandoned",
    "recover_session",
    "upto_of",
    "with_upto",
]


async def recover_session(
    store: SnapshotStore,
    session_id: str,
    *,
    lease: Lease,
    reducers: Mapping[str, Reducer] | None = None,
    now: datetime,
) -> Recovered | None:
    """`recover_hold` for a caller that has the lease and no hold yet. Goes with the old journal."""
    if not isinstance(store, PlacedStore):
        return None
    place = FilePlace(store)
    directory = store.session_dir(session_id)
    spool = place._open_spool(session_id, directory)  # noqa: SLF001 — goes with this function
    hold = FileHold(session_id, directory, lease, spool, place)
    try:
        return await run_async(recover_hold(session_id, hold, reducers or {}, now), store)
    finally:
        hold._close()  # noqa: SLF001 — goes with this function
