"""The place where a store keeps leases and spools; hold a session briefly, to change more than its conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from snapshot_plugin.errors import Conflict, InvalidInput, SessionLocked
from snapshot_plugin.inert import several
from snapshot_plugin.live.lease import FileHold, FilePlace, Lease, Owner
from snapshot_plugin.live.owners import Ownership
from snapshot_plugin.live.ports import Hold, LivePlace, LocalPlace, StoreWithRows
from snapshot_plugin.live.rows import RowPlace
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.hop import in_thread

__all__ = [
    "FileHold",
    "FilePlace",
    "held_alone",
    "leased_or_owned",
    "must_be_recovered",
    "ownerships_elsewhere",
    "place_of",
    "refuse_shared_without_leases",
    "required_place",
]


def place_of(store: SnapshotStore) -> LivePlace | None:
    """Where *store* keeps leases and spools; None if it has no such place and can only keep snapshots.

    A store may provide its own place in the attribute ``live_place``.
    """
    own = getattr(store, "live_place", None)
    if own is not None:
        place: LivePlace = own
        return place
    if isinstance(store, StoreWithRows):
        return RowPlace(store.live_rows, store.session_keys)
    return FilePlace(store) if isinstance(store, LocalPlace) else None


def required_place(store: SnapshotStore) -> LivePlace:
    """As `place_of`, for callers that need leases and spools.

    Raises:
        InvalidInput: the store has no leases: two processes could run one session, and streamed output would be
            lost if this one dies.
    """
    place = place_of(store)
    if place is None:
        raise _no_leases()
    return place


def refuse_shared_without_leases(store: SnapshotStore) -> None:
    """Raise `InvalidInput` if several machines share the store and it has no leases, as in a bucket."""
    if store.capabilities.several_machines and place_of(store) is None:
        raise _no_leases()


def _no_leases() -> InvalidInput:
    return InvalidInput(
        "a live session cannot be kept here: this store has no leases (a bucket has none), so two machines could "
        "run the session at once",
        hint="record to a directory on disk and copy it to the bucket with asnap archive, "
        "or use PostgreSQL: --store postgresql://host/database",
    )


def ownerships_elsewhere(store: SnapshotStore) -> dict[str, Ownership]:
    """The owners of sessions in a store that is not on a local disk. Buckets have none."""
    place = place_of(store) if store.capabilities.live else None
    return place.ownerships() if isinstance(place, RowPlace) else {}


# Holding a session briefly ----------------------------------------------------------------------------------


@asynccontextmanager
async def leased_or_owned(
    store: SnapshotStore, session_id: str, clock: Callable[[], datetime]
) -> AsyncIterator[Owner | None]:
    """Hold the session's lease for the block and yield None; if the session has an owner, yield that instead.

    A dead owner's spool is kept, and the session is still reported as abandoned.
    """
    held: Lease | Hold | Owner | None = None
    place, us = place_of(store), Owner.this_process(since=clock())
    if place is not None:
        held = await in_thread(_lease_or_owner, place, session_id, us, lost=_hand_back)
    try:
        yield held if isinstance(held, Owner) else None
    finally:
        await in_thread(_hand_back, held)


def _hand_back(held: Lease | Hold | Owner | None) -> None:
    if held is not None and not isinstance(held, Owner):
        held.hand_back()


def _lease_or_owner(place: LivePlace, session_id: str, us: Owner) -> Lease | Hold | Owner | None:
    try:
        return place.lease(session_id, us) if isinstance(place, FilePlace) else place.take(session_id, us)
    except SessionLocked:
        owner = place.owner(session_id)
        if owner is None:  # it has just ended
            raise
        return owner


@asynccontextmanager
async def held_alone(
    store: SnapshotStore, session_id: str, clock: Callable[[], datetime], *, to: str
) -> AsyncIterator[None]:
    """Hold the session's lease for the block, for changes that a live session does not allow.

    Raises:
        SessionLocked: the session is live. The hint says to end its process, then do *to*.
    """
    async with leased_or_owned(store, session_id, clock) as owner:
        if owner is not None:
            raise SessionLocked(
                f"session {session_id!r} is live: it belongs to {owner}",
                session_id=session_id,
                hint=f"end that process first, then {to}",
            )
        yield


async def must_be_recovered(store: SnapshotStore, session_id: str) -> None:
    """Refuse a session with an unrecovered spool. The caller holds its lease.

    Raises:
        Conflict: the spool of a killed process is not recovered yet.
    """
    place = place_of(store)
    count = len(await in_thread(place.records, session_id)) if place else 0
    if count:
        error = Conflict(
            f"a killed process left {several(count, 'record')} of session {session_id} that no snapshot has yet",
            session_id=session_id,
            hint="recover them first",
        )
        error.run = "asnap recover"
        raise error
