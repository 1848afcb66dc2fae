"""The trash: forgotten sessions and snapshots, until they are purged."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from snapshot_plugin.operations.document import Document, Part

if TYPE_CHECKING:
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore, Trashed

__all__ = ["Discarded", "Purged", "discarded", "in_the_trash"]


class Discarded(Part):
    """One entry of the trash."""

    session_id: str
    token: str
    """Its id for `asnap undo`."""
    deleted_at: datetime
    size_bytes: int
    is_copy: bool
    """Whether the session still exists; then this is a copy from before snapshots were dropped."""


class Purged(Document):
    """What was removed permanently, or would be."""

    kind: ClassVar[str] = "purge"
    rows: ClassVar[str] = "removed"
    removed: tuple[Discarded, ...]
    size_bytes: int
    kept: int
    """How many are not old enough and are kept."""
    dry_run: bool
    as_of: datetime


async def in_the_trash(work: Work, store: SnapshotStore) -> Purged:
    """Return what a purge would remove permanently. Changes nothing."""
    trash = await store.trash()
    return await discarded(work, store, trash, kept=0, dry_run=True)


async def discarded(
    work: Work, store: SnapshotStore, entries: Sequence[Trashed], *, kept: int, dry_run: bool
) -> Purged:
    """Return *entries* of the trash as answers show them."""
    there = {meta.session_id for meta in await store.list()}
    return Purged(
        removed=tuple(Discarded.from_fields(each, is_copy=each.session_id in there) for each in entries),
        size_bytes=sum(each.size_bytes for each in entries),
        kept=kept,
        dry_run=dry_run,
        as_of=work.now,
    )
