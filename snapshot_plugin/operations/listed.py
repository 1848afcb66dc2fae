"""The sessions of a store as a list, and what the list leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.scope import Selected, Selection, select
from snapshot_plugin.operations.session_rows import SessionRow

__all__ = ["HiddenSession", "Listed", "listed"]


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
    """What all sessions of the store take."""
    encrypted: bool
    as_of: datetime


def listed(
    rows: Sequence[SessionRow], selection: Selection, *, why: bool = False, encrypted: bool = False, as_of: datetime
) -> Listed:
    """Of *rows*, all sessions of the store, those that were asked for; *why* also names the others."""
    selected = select(rows, selection)
    return Listed(
        sessions=selected.shown,
        total=len(rows),
        hidden=selected.counts,
        hidden_sessions=_named(selected) if why else (),
        below=selection.below,
        size_bytes=sum(row.size_bytes for row in rows),
        encrypted=encrypted,
        as_of=as_of,
    )


def _named(selected: Selected) -> tuple[HiddenSession, ...]:
    return tuple(
        HiddenSession(session_id=row.session_id, title=row.title, by=by, why=why)
        for row, by, why in selected.hidden
    )
