"""Fork and merge stored sessions. The originals are never changed."""

from __future__ import annotations

import logging
import warnings
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import anyio

from snapshot_plugin.errors import Damaged, InvalidInput, SnapshotError
from snapshot_plugin.manager.working_memory import PIN, find_memory, memory_id, pin_of
from snapshot_plugin.model.ids import check_number
from snapshot_plugin.model.lineage import fork
from snapshot_plugin.model.merge import Kinship, Merged, MergeSide, kinship, merge
from snapshot_plugin.model.snapshot import SessionSnapshot

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Made", "branched", "merged", "renamed", "save_branch"]

_log = logging.getLogger(__name__)

_OWN = "spool"
"""In a snapshot's metadata: the spool records it contains. Not copied, because a branch has its own spool."""


async def branched(
    store: SnapshotStore,
    session_id: str,
    *,
    as_id: str,
    now: datetime,
    seq: int | None = None,
    messages: int | None = None,
    title: str | None = None,
) -> SessionSnapshot:
    """A new session with the first *messages* messages of a stored one; by default, all of them.

    It is not saved yet. *seq* is the snapshot to branch from, by default the newest; see `model.lineage.fork`.
    """
    check_number("messages", messages)
    found = await store.read(session_id, at=seq)
    new = _without_spool(fork(found.snapshot, session_id=as_id, seq=found.ref.seq, now=now, messages=messages))
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
    """Merge two branches, each a session id and the number of a snapshot (None: the newest); see `model.merge`.

    The result is not saved yet. The common ancestor is used if the store still has it.
    """
    one, other = await _side(store, *first), await _side(store, *second)
    kin = kinship(one, other, [(meta.session_id, meta.parent) for meta in await store.list()])
    base = await _base(store, kin)
    return merge(one, other, session_id=as_id, now=now, kin=kin, base=base, title=title)


async def _side(store: SnapshotStore, session_id: str, seq: int | None) -> MergeSide:
    found = await store.read(session_id, at=seq)
    return MergeSide(_without_spool(found.snapshot), found.ref.seq)


async def _base(store: SnapshotStore, kin: Kinship | None) -> SessionSnapshot | None:
    if kin is None:
        return None
    try:
        found = await store.read(kin.ancestor.session_id, at=kin.ancestor.seq)
    except SnapshotError:  # forgotten, deleted or damaged: merge without a common ancestor
        return None
    return _without_spool(found.snapshot)


def renamed(at: int) -> int:
    """The value of *messages*, which may be given under its old name."""
    warnings.warn("fork(at=…) is called fork(messages=…) now", DeprecationWarning, stacklevel=3)
    return at


class Made(NamedTuple):
    """A newly saved session."""

    snapshot: SessionSnapshot
    session_ids: tuple[str, ...]
    """The new sessions: the branch itself, and its memory."""


async def save_branch(store: SnapshotStore, snapshot: SessionSnapshot, *, trigger: str) -> Made:
    """Save a new session; `Conflict` if the id is taken.

    If it refers to another session's working memory, it gets its own copy of that memory at that snapshot, so that
    changes or deletion on one side do not affect the other. Both are saved, or neither.
    """
    memory = await _own_memory(store, snapshot)
    if memory is None:
        await store.save(snapshot, trigger=trigger, base=0)
        return Made(snapshot, (snapshot.session_id,))
    ref = await store.save(memory, trigger=trigger, base=0)
    try:
        pin = {**snapshot.metadata[PIN], "session_id": memory.session_id, "seq": ref.seq}
        snapshot = snapshot.evolve(metadata={**snapshot.metadata, PIN: pin})
        await store.save(snapshot, trigger=trigger, base=0)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await store.delete(memory.session_id)
        raise
    return Made(snapshot, (snapshot.session_id, memory.session_id))


async def _own_memory(store: SnapshotStore, snapshot: SessionSnapshot) -> SessionSnapshot | None:
    """A copy of the memory that *snapshot* refers to; None if it refers to none."""
    try:
        pin = pin_of(snapshot)
        found = await find_memory(store, pin.session_id, seq=pin.seq) if pin else None
    except (Damaged, InvalidInput) as error:
        _log.warning("session %s goes without a copy of the memory: %s", snapshot.session_id, error.message)
        return None
    return found.evolve(session_id=memory_id(snapshot.session_id)) if found else None


def _without_spool(snapshot: SessionSnapshot) -> SessionSnapshot:
    if _OWN not in snapshot.metadata:
        return snapshot
    return snapshot.evolve(metadata={key: value for key, value in snapshot.metadata.items() if key != _OWN})
