"""Sessions that ended without a proper stop: what their spools hold becomes a snapshot, once.

The invariant: a snapshot says in ``metadata.spool.upto`` which records it contains, and is durable before they are
dropped. So recovery may be killed anywhere and run any number of times: no record is lost, none is applied twice.
A session with a live owner is left alone, and one that cannot be recovered does not keep others from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol, runtime_checkable

from snapshot_plugin.errors import (
    Damaged,
    InvalidSnapshot,
    SessionLocked,
    SnapshotCorrupted,
    SnapshotError,
    SnapshotNotFound,
)
from snapshot_plugin.manager.lease import Lease, Owner, ended_without_stop, owner_of
from snapshot_plugin.manager.ports import LocalPlace
from snapshot_plugin.manager.presence import sessions_of
from snapshot_plugin.manager.reduce import reduce_messages
from snapshot_plugin.manager.spool import Spool, SpoolContents, SpoolRecord, read_spool, set_aside
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.hop import in_thread

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

_NOTE: Final = "spool"

Reducer = Callable[[SessionSnapshot, Sequence[SpoolRecord]], SessionSnapshot]
"""Applies records, at least one, to the newest snapshot; to an empty one, where the session has none."""


@runtime_checkable
class PlacedStore(SnapshotStore, LocalPlace, Protocol):
    """A store whose sessions can have spools and leases."""


@runtime_checkable
class LocalStore(PlacedStore, Protocol):
    """A store on this machine's disk: each session is a directory in ``path / "sessions"``, as format.md says."""

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was found of one session that ended without a proper stop.

    `ref` is the snapshot made of `records` records; without it, `problem` says why there is none, or there was
    nothing to recover. With both, something was recovered and something could not be. `previous_owner` is the
    process that died, where it left its name.
    """

    session_id: str
    records: int = 0
    ref: SnapshotRef | None = None
    problem: str | None = None
    previous_owner: Owner | None = None


async def recover(
    store: SnapshotStore, *, reducers: Mapping[str, Reducer] | None = None, now: datetime
) -> list[Recovered]:
    """Recover every session of *store* that has records beyond its head and no live owner.

    Sessions that died with nothing to recover are reported too, once. What cannot be recovered is reported and
    stays where it is. A store that is not on a local disk has nothing to recover.

    Args:
        store: the store to look through.
        reducers: how to apply records, by provider type; ``"messages"`` is there by itself, and the default.
        now: the time to put on what is recovered.
    """
    if not isinstance(store, LocalStore):
        return []
    found = []
    for session_id in await in_thread(sessions_of, store.path):
        outcome = await recover_if_abandoned(store, session_id, reducers or {}, now)
        if outcome is not None:
            found.append(outcome)
    return found


async def recover_session(
    store: SnapshotStore,
    session_id: str,
    *,
    lease: Lease,
    reducers: Mapping[str, Reducer] | None = None,
    now: datetime,
) -> Recovered | None:
    """Recover the session whose *lease* the caller holds, before it opens the spool. None: there was nothing to do.

    Afterwards the spool holds nothing that the head lacks and numbers go on after the head's, so it can be opened:
    what makes no sense was set aside, whole, and `Recovered.problem` says where.

    Raises:
        SnapshotError: what may work another time (disk, key, newer release) did not; the spool is as it was.
    """
    if not isinstance(store, PlacedStore):
        return None
    task = _Task(store, session_id, lease, reducers or {}, now)
    try:
        outcome = await _recover(task)
    except (InvalidSnapshot, Damaged) as error:
        aside = await _begin_anew(task)
        problem = f"{error.message}; the spool is kept as {aside}"
        return Recovered(session_id=session_id, problem=problem, previous_owner=lease.previous)
    return outcome if outcome != Recovered(session_id=session_id) else None


def upto_of(snapshot: SessionSnapshot | None) -> int:
    """The number of the newest spool record that *snapshot* contains; 0 if it contains none."""
    note = snapshot.metadata.get(_NOTE) if snapshot else None
    upto = note.get("upto") if isinstance(note, dict) else None
    return upto if isinstance(upto, int) else 0


def with_upto(snapshot: SessionSnapshot, upto: int) -> SessionSnapshot:
    """*snapshot*, saying that it contains the spool records up to *upto*."""
    return snapshot.evolve(metadata={**snapshot.metadata, _NOTE: {"upto": upto}})


class _Task(NamedTuple):
    store: PlacedStore
    session_id: str
    lease: Lease
    reducers: Mapping[str, Reducer]
    now: datetime


async def recover_if_abandoned(
    store: LocalStore, session_id: str, reducers: Mapping[str, Reducer], now: datetime
) -> Recovered | None:
    """Recover one session if nobody has it; None if somebody has, or if it was stopped properly."""
    try:
        lease = await in_thread(_lease_if_abandoned, store, session_id, now, lost=_give_back)
    except SessionLocked:
        return None
    except SnapshotError as error:
        return Recovered(session_id=session_id, problem=error.message)
    if lease is None:
        return None
    try:
        return await _recover(_Task(store, session_id, lease, reducers, now))
    except SnapshotError as error:
        return Recovered(session_id=session_id, problem=error.message, previous_owner=lease.previous)
    finally:
        lease.release()


def _give_back(lease: Lease | None) -> None:
    if lease is not None:
        lease.release()


def _lease_if_abandoned(store: LocalStore, session_id: str, now: datetime) -> Lease | None:
    """The lease of a session that seems to need recovery; None if it does not."""
    directory = store.session_dir(session_id)
    if owner_of(directory) is not None:
        return None
    if ended_without_stop(directory) is None:
        left = read_spool(directory, session_id=session_id, keys=store.session_keys(session_id))
        if not left.records and left.damage is None:
            return None
    return Lease.acquire(directory, Owner.this_process(since=now))


async def _recover(task: _Task) -> Recovered:
    left = await in_thread(_left_behind, task)
    head = await _head(task)
    records = _beyond(head, left)
    ref = await _save(task, head, records) if records else None
    upto = records[-1].n if records else upto_of(head)
    problem = await in_thread(_drop, task, upto, left)
    return Recovered(
        session_id=task.session_id,
        records=len(records),
        ref=ref,
        problem=problem,
        previous_owner=task.lease.previous,
    )


async def _begin_anew(task: _Task) -> Path | None:
    """Set the spool aside, and begin one whose numbers collide with nothing that was ever written."""
    left = await in_thread(_left_behind, task)
    try:
        upto = upto_of(await _head(task))
    except Damaged:
        upto = 0

    def begin() -> Path | None:
        aside = set_aside(task.store.session_dir(task.session_id))
        _open_spool(task, after=max(upto, left.last)).close()
        return aside

    return await in_thread(begin)


def _left_behind(task: _Task) -> SpoolContents:
    directory, keys = task.store.session_dir(task.session_id), task.store.session_keys(task.session_id)
    return read_spool(directory, session_id=task.session_id, keys=keys)


async def _head(task: _Task) -> SessionSnapshot | None:
    try:
        return await task.store.load(task.session_id)
    except SnapshotNotFound:
        return None


def _beyond(head: SessionSnapshot | None, left: SpoolContents) -> list[SpoolRecord]:
    upto = upto_of(head)
    records = [record for record in left.records if record.n > upto]
    if records and left.base > upto:
        raise SnapshotCorrupted(
            f"spool records {upto + 1} to {left.base} are missing, so those after them were not applied"
        )
    return records


async def _save(task: _Task, head: SessionSnapshot | None, records: Sequence[SpoolRecord]) -> SnapshotRef:
    begun = task.lease.previous.since if task.lease.previous else task.now
    start = head or SessionSnapshot(session_id=task.session_id, created_at=begun, updated_at=task.now)
    reduced = await in_thread(_reduced, task, start, records)
    if reduced.updated_at == start.updated_at:
        reduced = reduced.evolve(updated_at=task.now)
    return await task.store.save(with_upto(reduced, records[-1].n), trigger="recovered")


def _reduced(task: _Task, start: SessionSnapshot, records: Sequence[SpoolRecord]) -> SessionSnapshot:
    reducer = _reducer_for(start, records, {"messages": reduce_messages, **task.reducers})
    try:
        reduced = reducer(start, records)
    except Exception as error:
        raise InvalidSnapshot(f"the spool could not be applied: {type(error).__name__}: {error}") from error
    if getattr(reduced, "session_id", None) != task.session_id:
        raise InvalidSnapshot(f"the spool turned into something that is not session {task.session_id!r}")
    return reduced


def _reducer_for(
    start: SessionSnapshot, records: Sequence[SpoolRecord], reducers: Mapping[str, Reducer]
) -> Reducer:
    """The first record may name the provider type; else the session does, and else it is messages."""
    named = records[0].data.get("provider_type")
    if named is None:
        return reducers.get(start.provider_type, reducers["messages"])
    if not isinstance(named, str) or named not in reducers:
        raise InvalidSnapshot(f"nobody here knows how to apply records of provider type {named!r}")
    return reducers[named]


def _drop(task: _Task, upto: int, left: SpoolContents) -> str | None:
    """Empty the spool; say what is wrong with it, and where a damaged one is kept."""
    try:
        spool = _open_spool(task, after=upto)
    except SnapshotError as error:  # what it held is saved and marked as saved, so this is no failure
        return f"the spool could not be emptied: {error.message}"
    spool.close()
    return f"{left.damage}; kept as {spool.set_aside}" if left.damage else None


def _open_spool(task: _Task, *, after: int) -> Spool:
    directory, keys = task.store.session_dir(task.session_id), task.store.session_keys(task.session_id)
    return Spool.open(directory, session_id=task.session_id, keys=keys, after=after)
