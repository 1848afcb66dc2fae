"""A session as lists show it: one row for ``list``, the picker, ``show`` and ``resume``. No body is ever opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snapshot_plugin.model.ids import as_reference, is_companion
from snapshot_plugin.operations.document import Part
from snapshot_plugin.operations.text import plain, several

if TYPE_CHECKING:
    from pathlib import Path

    from snapshot_plugin.live.lease import Owner
    from snapshot_plugin.live.owners import Ownership
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "Holder",
    "SessionRow",
    "every_row",
    "holder_of",
    "marks",
    "row_of",
    "rows_at",
    "rows_of",
    "session_rows",
    "unsaved_rows",
    "who_has",
]


class Holder(Part):
    """The process that owns a session."""

    pid: int
    host: str
    since: datetime
    command: tuple[str, ...] = ()


class SessionRow(Part):
    """One session: the newest snapshot's summary, and its owner."""

    session_id: str
    short_id: str
    """The shortest beginning of the id that no other session shares."""
    title: str | None = None
    opening: str | None = None
    """The beginning of the first prompt, if there is no title."""
    agent: str | None = None
    provider_type: str | None = None
    cwd: str | None = None
    state: str = "ok"
    """ok, damaged, encrypted (no available key opens it) or too_new (a newer release wrote it)."""
    problem: str | None = None
    next: str | None = None
    """The command to run about its state; null if nothing is wrong."""
    live: Holder | None = None
    ended_unexpectedly: bool = False
    """Its process died, and its spool was not recovered yet."""
    last_sign: datetime | None = None
    recovered: bool = False
    """The newest snapshot was recovered from the spool of a killed process."""
    restored: str | None = None
    """The grade of the last restore; null if it was never restored."""
    pinned: bool = False
    tags: tuple[str, ...] = ()
    snapshot_tags: tuple[str, ...] = ()
    parent: str | None = None
    created_at: datetime | None = None
    changed_at: datetime
    saved_at: datetime
    seq: int
    trigger: str
    messages: int = 0
    turns: int = 0
    tokens: int = 0
    cost: float | None = None
    size_bytes: int = 0

    @property
    def counts_turns(self) -> bool:
        """Whether `turns` counts all its turns: some writers count none, and a branch only those since it began."""
        return bool(self.turns or not self.messages) and self.parent is None

    @property
    def length(self) -> str:
        """Its length: its turns, or its messages if turns are not counted."""
        return several(self.turns, "turn") if self.counts_turns else several(self.messages, "message")

    @property
    def name(self) -> str:
        """Its display name: the title, or the beginning of the first prompt. Safe to print."""
        return plain(self.title or self.opening or "") or "(untitled)"

    @property
    def is_memory(self) -> bool:
        """Whether it only holds another session's working memory."""
        return is_companion(self.session_id)


async def session_rows(store: SnapshotStore) -> list[SessionRow]:
    """Every session of the store, last changed first."""
    return await rows_of(store, await store.list())


async def every_row(store: SnapshotStore, metas: Sequence[SnapshotMeta]) -> list[SessionRow]:
    """As `rows_of` for all sessions of the store, after those that have only a spool yet."""
    import anyio.to_thread

    root, present = await _place(store)
    rows = await anyio.to_thread.run_sync(rows_at, root, metas, present)
    return [*await anyio.to_thread.run_sync(unsaved_rows, root, rows, present), *rows]


async def rows_of(store: SnapshotStore, metas: Sequence[SnapshotMeta]) -> list[SessionRow]:
    """As `session_rows`, for sessions that were listed already; short ids are unique among them."""
    import anyio.to_thread

    root, present = await _place(store)
    return await anyio.to_thread.run_sync(rows_at, root, metas, present)


async def _place(store: SnapshotStore) -> tuple[Path | None, dict[str, Ownership]]:
    """The directory of a store on disk; for other stores, the owners of its sessions by `short_id`."""
    import anyio.to_thread

    from snapshot_plugin.live.place import ownerships_elsewhere

    root = getattr(store, "path", None)
    return root, {} if root else await anyio.to_thread.run_sync(ownerships_elsewhere, store)


def rows_at(
    root: Path | None, metas: Sequence[SnapshotMeta], elsewhere: Mapping[str, Ownership] | None = None
) -> list[SessionRow]:
    """As `rows_of`, blocking: for the store in the directory *root*, or with the owners in *elsewhere*."""
    from snapshot_plugin.live.owners import ownerships
    from snapshot_plugin.model.ids import short_id
    from snapshot_plugin.operations.references import short_ids

    ids = [meta.session_id for meta in metas]
    short = short_ids(ids)
    present = ownerships(root, ids) if root else {each: (elsewhere or {}).get(short_id(each)) for each in ids}
    return [row_of(meta, short[meta.session_id], present.get(meta.session_id)) for meta in metas]


def unsaved_rows(
    root: Path | None, saved: Sequence[SessionRow], elsewhere: Mapping[str, Ownership] | None = None
) -> list[SessionRow]:
    """Sessions without a snapshot yet, only a spool. *saved* are the others."""
    from snapshot_plugin.live.owners import unsaved
    from snapshot_plugin.model.ids import short_id

    if root:
        found = unsaved(root, [row.session_id for row in saved])
    else:
        known = {short_id(row.session_id) for row in saved}
        found = {name: presence for name, presence in (elsewhere or {}).items() if name not in known}
    return [_unsaved(name, presence) for name, presence in found.items()]


def _unsaved(session_id: str, presence: Ownership) -> SessionRow:
    someone = presence.owner or presence.died
    moment = presence.last_sign or (someone.since if someone else datetime.fromtimestamp(0, UTC))
    return SessionRow(
        session_id=session_id,
        short_id=session_id,
        **who_has(presence),
        next="asnap recover" if presence.died else None,
        changed_at=moment,
        saved_at=moment,
        seq=0,
        trigger="",
    )


def row_of(meta: SnapshotMeta, short_id: str, presence: Ownership | None = None) -> SessionRow:
    """The row of a session, from its listing and its owner."""
    return SessionRow.from_fields(
        meta,
        short_id=short_id,
        next=_next(meta, presence),
        **who_has(presence),
        recovered=meta.trigger == "recovered",
        parent=meta.parent.session_id if meta.parent else None,
    )


def _next(meta: SnapshotMeta, presence: Ownership | None) -> str | None:
    if meta.state == "damaged":
        import shlex

        return f"asnap check {shlex.quote(as_reference(meta.session_id))}"
    return _NEXT.get(meta.state) or ("asnap recover" if presence and presence.died else None)


_NEXT = {"encrypted": "asnap keys status", "too_new": "pip install --upgrade snapshot-plugin"}


def who_has(presence: Ownership | None) -> dict[str, Any]:
    """The owner columns of a row: the owner, or the one that died; empty for most sessions."""
    if presence is None:
        return {}
    return {
        "live": holder_of(presence.owner) if presence.owner else None,
        "ended_unexpectedly": presence.died is not None,
        "last_sign": presence.last_sign,
    }


def holder_of(owner: Owner) -> Holder:
    """A session's owner as rows show it."""
    return Holder.from_fields(owner, command=(owner.program,) if owner.program else ())


def marks(row: SessionRow) -> Iterable[str]:
    """What is special about a session, the most urgent first; nothing for most."""
    if row.state != "ok":
        yield row.state.replace("_", "-")
    if row.live:
        yield f"live {row.live.pid}"
    if row.ended_unexpectedly:
        yield "ended"
    if row.recovered:
        yield "recovered"
    elif row.restored:
        yield "restored"
    if row.pinned:
        yield "pinned"
