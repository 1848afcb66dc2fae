"""Holding the lease of a session for a moment, to change something about it that is not its conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from snapshot_plugin.errors import Conflict, SessionLocked
from snapshot_plugin.live.lease import Lease, Owner, owner_of
from snapshot_plugin.live.place import place_of
from snapshot_plugin.live.ports import Hold, LivePlace, LocalStore, StoreWithRows
from snapshot_plugin.live.spool import read_spool
from snapshot_plugin.model.ids import dirname_of, short_id
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.hop import in_thread

__all__ = ["held_alone", "leased_or_owned", "must_be_recovered"]


@asynccontextmanager
async def leased_or_owned(
    store: SnapshotStore, session_id: str, clock: Callable[[], datetime]
) -> AsyncIterator[Owner | None]:
    """Hold the session's lease for a moment. Yields its owner instead if it has one; None: the lease is ours.

    A dead owner's spool is kept, and is still reported as left behind.
    """
    held: Lease | Hold | Owner | None = None
    place, us = place_of(store), Owner.this_process(since=clock())
    if isinstance(store, LocalStore):
        held = await in_thread(_lease_or_owner, store, session_id, us, lost=_hand_back)
    elif place is not None:
        held = await in_thread(_hold_or_owner, place, session_id, us, lost=_hand_back)
    try:
        yield held if isinstance(held, Owner) else None
    finally:
        await in_thread(_hand_back, held)


def _hand_back(held: Lease | Hold | Owner | None) -> None:
    if held is not None and not isinstance(held, Owner):
        held.hand_back()


def _hold_or_owner(place: LivePlace, session_id: str, us: Owner) -> Hold | Owner:
    try:
        return place.take(session_id, us)
    except SessionLocked:
        owner = place.owner(session_id)
        if owner is None:  # it ended just now
            raise
        return owner


def _lease_or_owner(store: LocalStore, session_id: str, us: Owner) -> Lease | Owner | None:
    if not (store.path / "sessions" / dirname_of(session_id)).is_dir():
        return None
    directory = store.session_dir(session_id)
    try:
        return Lease.acquire(directory, us)
    except SessionLocked:
        owner = owner_of(directory)
        if owner is None:  # it ended just now
            raise
        return owner


@asynccontextmanager
async def held_alone(
    store: SnapshotStore, session_id: str, clock: Callable[[], datetime], *, to: str
) -> AsyncIterator[None]:
    """The same for what cannot be done to a live session.

    Raises:
        SessionLocked: the session is live; *to* do it, its process has to end first.
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
    """Refuse a session with an unrecovered spool; the caller holds its lease.

    Raises:
        Conflict: the spool of a killed process is not recovered yet.
    """
    if isinstance(store, LocalStore | StoreWithRows):
        await in_thread(_check_spool, store, session_id)


def _check_spool(store: LocalStore | StoreWithRows, session_id: str) -> None:
    if isinstance(store, StoreWithRows):
        count = store.live_rows.count(short_id(session_id))
    else:
        keys = store.session_keys(session_id)
        count = len(read_spool(store.session_dir(session_id), session_id=session_id, keys=keys).records)
    if count:
        error = Conflict(
            f"{count} record(s) a killed process left of session {session_id} are in no snapshot yet",
            session_id=session_id,
            hint="recover them first",
        )
        error.run = "asnap recover"
        raise error
