"""Recovery: the records of sessions that ended without a proper stop become a snapshot, exactly once.

The invariant: a snapshot says in ``metadata.spool.upto`` which records it contains, and is durable before they are
dropped. So recovery may be killed anywhere and run any number of times: no record is lost, none is applied twice.
A session with a living owner is left alone, and one that cannot be recovered does not keep others from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import methodcaller
from typing import NamedTuple

from snapshot_plugin.errors import Damaged, InvalidSnapshot, SessionLocked, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import place_of
from snapshot_plugin.live.ports import Hold, LivePlace, Record, Reduce
from snapshot_plugin.live.reducers import reduced
from snapshot_plugin.live.steps import Blocking, Steps, StoreCall, run_async
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot, upto_of, with_upto
from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot
from snapshot_plugin.store.hop import in_thread

__all__ = ["Recovered", "recover", "recover_hold", "recover_if_abandoned", "upto_of", "with_upto"]


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
    store: SnapshotStore, *, reducers: Mapping[str, Reduce] | None = None, now: datetime
) -> list[Recovered]:
    """Recover every session of *store* that has records beyond its head and no living owner.

    Sessions that died with nothing to recover are reported too, once. What cannot be recovered is reported each
    time and stays where it is. A store without a place for live sessions has nothing to recover.

    Args:
        store: the store to look through.
        reducers: how to apply records, by provider type, beyond those the package knows (`reducers.KNOWN`).
        now: the time to put on what is recovered.
    """
    place = place_of(store)
    found = [
        await recover_if_abandoned(store, session_id, reducers or {}, now)
        for session_id in (await in_thread(place.abandoned) if place else ())
    ]
    return [recovered for recovered in found if recovered is not None]


async def recover_if_abandoned(
    store: SnapshotStore, session_id: str, reducers: Mapping[str, Reduce], now: datetime
) -> Recovered | None:
    """Recover one session if it has no owner; None if it has one, or if it was stopped properly."""
    place = place_of(store)
    if place is None:
        return None
    try:
        return await run_async(_recover_abandoned(place, session_id, reducers, now), store)
    except SessionLocked:
        return None
    except SnapshotError as error:
        return Recovered(session_id=session_id, problem=error.message)


def _recover_abandoned(
    place: LivePlace, session_id: str, reducers: Mapping[str, Reduce], now: datetime
) -> Steps[Recovered | None]:
    if not (yield Blocking(place.is_abandoned, (session_id,))):
        return None
    hold: Hold = yield Blocking(place.take, (session_id, Owner.this_process(since=now)), methodcaller("hand_back"))
    try:
        recovered = yield from _recovered(session_id, hold, reducers, now)
    except SnapshotError as error:
        hold.hand_back()
        return Recovered(session_id=session_id, problem=error.message, previous_owner=hold.previous)
    except BaseException:
        hold.hand_back()
        raise
    yield Blocking(hold.release)
    return recovered if recovered != Recovered(session_id=session_id) else None


def recover_hold(
    session_id: str, hold: Hold, reducers: Mapping[str, Reduce], now: datetime
) -> Steps[Recovered | None]:
    """Recover the session of *hold*, which the caller is about to record. None: there was nothing to do.

    Afterwards the spool holds nothing that the head lacks, and numbers continue after the head's. Records that
    cannot be applied are set aside, whole, and `Recovered.problem` says where.

    Raises:
        SnapshotError: what may work another time (disk, key, newer release) did not; the spool is as it was.
    """
    try:
        recovered = yield from _recovered(session_id, hold, reducers, now)
    except (InvalidSnapshot, Damaged) as error:
        try:
            upto = upto_of((yield from _head(session_id)).snapshot)
        except Damaged:
            upto = 0
        aside = yield Blocking(hold.set_aside, (upto,))
        problem = f"{error.message}; the spool is kept as {aside}"
        return Recovered(session_id=session_id, problem=problem, previous_owner=hold.previous)
    return recovered if recovered != Recovered(session_id=session_id) else None


def _recovered(session_id: str, hold: Hold, reducers: Mapping[str, Reduce], now: datetime) -> Steps[Recovered]:
    head = yield from _head(session_id)
    records = hold.unsaved(upto_of(head.snapshot))
    ref: SnapshotRef | None = None
    if records:
        begun = hold.previous.since if hold.previous else now
        start = head.snapshot or SessionSnapshot(session_id=session_id, created_at=begun, updated_at=now)
        snapshot = yield Blocking(_snapshot_of, (start, records, reducers, now))
        ref = yield StoreCall("save", (snapshot,), {"trigger": "recovered", "base": head.base})
    problem = yield Blocking(_drop, (hold, records[-1].n if records else upto_of(head.snapshot)))
    return Recovered(
        session_id=session_id,
        records=len(records),
        ref=ref,
        problem=hold.damage or problem,
        previous_owner=hold.previous,
    )


class _Head(NamedTuple):
    """The newest whole snapshot, and what a save on top of it names as its base."""

    snapshot: SessionSnapshot | None
    base: int | None


def _head(session_id: str) -> Steps[_Head]:
    try:
        found: StoredSnapshot = yield StoreCall("read", (session_id,))
    except SnapshotNotFound:
        return _Head(None, 0)
    return _Head(found.snapshot, None if found.skipped else found.ref.seq)


def _snapshot_of(
    start: SessionSnapshot, records: Sequence[Record], reducers: Mapping[str, Reduce], now: datetime
) -> SessionSnapshot:
    snapshot = reduced(start, records, reducers)
    if snapshot.updated_at == start.updated_at:
        snapshot = snapshot.evolve(updated_at=now)
    return with_upto(snapshot, records[-1].n)


def _drop(hold: Hold, upto: int) -> str | None:
    """Empty the spool. The records are saved and marked as saved, so a refusal is only told."""
    try:
        hold.truncate(upto)
    except SnapshotError as error:
        return f"the spool could not be emptied: {error.message}"
    return None
