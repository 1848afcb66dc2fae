"""Fork and merge stored sessions. The originals are never changed."""

from __future__ import annotations

import logging
import warnings
from datetime import datetime
from typing import TYPE_CHECKING

from snapshot_plugin.errors import Damaged, InvalidInput, SnapshotError
from snapshot_plugin.manager.working_memory import PIN, pinned, with_memory
from snapshot_plugin.model.ids import check_number
from snapshot_plugin.model.lineage import fork
from snapshot_plugin.model.merge import Kinship, Merged, MergeSide, kinship, merge
from snapshot_plugin.model.snapshot import SessionSnapshot

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["branched", "merged", "renamed", "save_branch"]

_log = logging.getLogger(__name__)

_OWN = ("spool", PIN)
"""In a snapshot's metadata: the spool records it contains, and who holds its memory. A branch has its own."""


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
    snapshot, number = await _read(store, session_id, seq)
    new = fork(snapshot, session_id=as_id, seq=number, now=now, messages=messages)
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
    return MergeSide(*await _read(store, session_id, seq))


async def _base(store: SnapshotStore, kin: Kinship | None) -> SessionSnapshot | None:
    if kin is None:
        return None
    try:
        return (await _read(store, kin.ancestor.session_id, kin.ancestor.seq))[0]
    except SnapshotError:  # forgotten, deleted or damaged: merge without a common ancestor
        return None


async def _read(store: SnapshotStore, session_id: str, seq: int | None) -> tuple[SessionSnapshot, int]:
    """A snapshot with its memory, without what belongs to the session alone; and its number."""
    found = await store.read(session_id, at=seq)
    snapshot = found.snapshot
    try:
        snapshot = await with_memory(store, snapshot)
    except (Damaged, InvalidInput) as error:
        _log.warning("session %s is copied without its memory: %s", session_id, error.message)
    kept = {name: each for name, each in snapshot.metadata.items() if name not in _OWN}
    return snapshot if len(kept) == len(snapshot.metadata) else snapshot.evolve(metadata=kept), found.ref.seq


def renamed(at: int) -> int:
    """The value of *messages*, which may be given under its old name."""
    warnings.warn("fork(at=…) is called fork(messages=…) now", DeprecationWarning, stacklevel=3)
    return at


async def save_branch(store: SnapshotStore, snapshot: SessionSnapshot, *, trigger: str) -> SessionSnapshot:
    """Save a new session, and return it as it was saved; `Conflict` if the id is taken."""
    snapshot = pinned(snapshot)
    await store.save(snapshot, trigger=trigger, base=0)
    return snapshot
