"""Branches of a stored conversation: made, and brought together again. What they come from is never touched."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.model.lineage import fork
from snapshot_plugin.model.merge import Kinship, Merged, Side, kinship, merge
from snapshot_plugin.model.snapshot import SessionSnapshot

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["branched", "merged", "save_branch"]

_OWN = "spool"
"""In a snapshot's metadata: how far its session's spool is part of it. A new session has a spool of its own."""


async def branched(
    store: SnapshotStore,
    session_id: str,
    *,
    as_id: str,
    now: datetime,
    seq: int | None = None,
    at: int | None = None,
    title: str | None = None,
) -> SessionSnapshot:
    """A new session that begins with the first *at* messages of a stored one (all of them without *at*).

    Nothing is saved yet. *seq* is the snapshot it comes from, the newest unless given; see `model.lineage.fork`.
    """
    found = await store.read(session_id, at=seq)
    new = _without_spool(fork(found.snapshot, session_id=as_id, seq=found.ref.seq, now=now, at=at))
    return new if title is None else new.evolve(title=title)


async def merged(
    store: SnapshotStore,
    first: tuple[str, int | None],
    second: tuple[str, int | None],
    *,
    as_id: str,
    now: datetime,
    title: str | None = None,
) -> Merged:
    """Two branches, each a session and the number of its snapshot (None: the newest), made one; see `model.merge`.

    Nothing is saved yet. The snapshot they both come from is consulted where the store still has it.
    """
    one, other = await _side(store, *first), await _side(store, *second)
    kin = kinship(one, other, [(meta.session_id, meta.parent) for meta in await store.list()])
    base = await _base(store, kin)
    return merge(one, other, session_id=as_id, now=now, kin=kin, base=base, title=title)


async def _side(store: SnapshotStore, session_id: str, seq: int | None) -> Side:
    found = await store.read(session_id, at=seq)
    return Side(_without_spool(found.snapshot), found.ref.seq)


async def _base(store: SnapshotStore, kin: Kinship | None) -> SessionSnapshot | None:
    if kin is None:
        return None
    try:
        found = await store.read(kin.ancestor.session_id, at=kin.ancestor.seq)
    except SnapshotError:  # forgotten, deleted or damaged: then nobody knows who changed what
        return None
    return _without_spool(found.snapshot)


async def save_branch(store: SnapshotStore, snapshot: SessionSnapshot, *, trigger: str) -> None:
    """Save a new session; `Conflict` if there is one of that id."""
    await store.save(snapshot, trigger=trigger, base=0)


def _without_spool(snapshot: SessionSnapshot) -> SessionSnapshot:
    if _OWN not in snapshot.metadata:
        return snapshot
    return snapshot.evolve(metadata={key: value for key, value in snapshot.metadata.items() if key != _OWN})
