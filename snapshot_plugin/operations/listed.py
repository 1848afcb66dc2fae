"""The sessions of a store as a list, and what the list leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.scope import Selection, select
from snapshot_plugin.operations.session_rows import SessionRow

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["ArchivedStore", "HiddenSession", "Listed", "archived_stores", "listed"]


class ArchivedStore(Part):
    """A store that is copied to this archive: how old the copy is, and what is not in it."""

    host: str
    as_of: datetime
    lag_seconds: float
    sessions: int
    behind: tuple[str, ...]


class HiddenSession(Part):
    """A session that is not shown, and why."""

    session_id: str
    title: str | None
    by: str
    why: str


class Listed(Document):
    """Sessions, and what the list leaves out."""

    kind: ClassVar[str] = "list"
    rows: ClassVar[str] = "sessions"
    sessions: tuple[SessionRow, ...]
    total: int
    """How many sessions the store has."""
    hidden: dict[str, int]
    """How many are not shown, by what hides them."""
    hidden_sessions: tuple[HiddenSession, ...] = ()
    """Which ones; with --why."""
    below: str | None
    """The directory whose sessions are shown; null for all."""
    size_bytes: int
    """The size of all sessions in the store."""
    encrypted: bool
    archived: tuple[ArchivedStore, ...] = ()
    """If the store is an archive: the stores that are copied to it."""
    as_of: datetime


def archived_stores(store: SnapshotStore, now: datetime) -> tuple[ArchivedStore, ...]:
    """The stores that are copied to *store*, if it is an archive, and how old the copies are. Blocks."""
    from snapshot_plugin.store.archive import notes_of
    from snapshot_plugin.store.s3 import ObjectStore

    return tuple(
        ArchivedStore.from_fields(note, as_of=note.at, lag_seconds=max(0.0, (now - note.at).total_seconds()))
        for note in (notes_of(store) if isinstance(store, ObjectStore) else ())
    )


def listed(
    rows: Sequence[SessionRow],
    selection: Selection,
    *,
    why: bool = False,
    encrypted: bool = False,
    archived: tuple[ArchivedStore, ...] = (),
    as_of: datetime,
) -> Listed:
    """Select from *rows*, all sessions of the store; with *why*, also name those that are left out."""
    selected = select(rows, selection)
    return Listed(
        sessions=selected.shown,
        total=len(rows),
        hidden=selected.counts,
        hidden_sessions=tuple(HiddenSession.from_fields(row, by=by, why=text) for row, by, text in selected.hidden)
        if why
        else (),
        below=selection.below,
        size_bytes=sum(row.size_bytes for row in rows),
        encrypted=encrypted,
        archived=archived,
        as_of=as_of,
    )
