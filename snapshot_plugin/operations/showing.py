"""One session: what is known about it, its history, its conversation."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.operations.about import About, about
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.session_rows import SessionRow, rows_of
from snapshot_plugin.operations.transcript import Said, said_of

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.operations.references import Target
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

__all__ = ["Shown", "SnapshotRow", "history", "show", "shown", "snapshot_row"]


class SnapshotRow(Part):
    """One snapshot of a session's history."""

    seq: int
    saved_at: datetime
    state: str
    problem: str | None = None
    trigger: str
    tags: tuple[str, ...] = ()
    messages: int
    turns: int
    tokens: int
    size_bytes: int


class Shown(Document):
    """A session: what is to know about it, and what was asked for of its history and conversation."""

    kind: ClassVar[str] = "show"
    session: SessionRow
    about: About | None = None
    """Not where only the history or certain messages were asked for."""
    snapshot: int
    """The number of the snapshot that is shown."""
    history: tuple[SnapshotRow, ...] = ()
    messages: tuple[Said, ...] = ()
    as_of: datetime


async def history(work: Work, store: SnapshotStore, target: Target) -> Shown:
    """A session's snapshots, newest first."""
    (row,) = await rows_of(store, [target.meta])
    past = tuple(snapshot_row(meta) for meta in await store.history(target.session_id))
    return Shown(session=row, snapshot=past[0].seq, history=past, as_of=work.now)


async def show(work: Work, store: SnapshotStore, target: Target) -> tuple[StoredSnapshot, Shown]:
    """A session or one of its snapshots: as it is stored, and what is known about it without the conversation."""
    (row,) = await rows_of(store, [target.meta])
    stored = await store.read(target.session_id, at=target.seq)
    return stored, Shown(session=row, about=about(stored), snapshot=stored.ref.seq, as_of=work.now)


def shown(
    stored: StoredSnapshot, *, tools: bool, message: int | None = None, first: int | None = None
) -> tuple[Said, ...]:
    """The conversation: all of it, one message, or from one on.

    Raises:
        InvalidInput: there is no such message.
    """
    number, total = message or first or 1, len(stored.snapshot.messages)
    if number > max(1, total):
        raise InvalidInput(
            f"session {stored.ref.session_id} has no message {number}: it has {total}",
            session_id=stored.ref.session_id,
        )
    return tuple(said_of(stored.snapshot, tools=tools, first=number, last=message))


def snapshot_row(meta: SnapshotMeta) -> SnapshotRow:
    """What a history shows of a snapshot."""
    return SnapshotRow(
        seq=meta.seq,
        saved_at=meta.saved_at,
        state=meta.state,
        problem=meta.problem,
        trigger=meta.trigger,
        tags=meta.snapshot_tags,
        messages=meta.messages,
        turns=meta.turns,
        tokens=meta.tokens,
        size_bytes=meta.size_bytes,
    )
