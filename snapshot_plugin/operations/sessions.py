"""The sessions of a store as lists show them: a row for each, which are selected, and what is left out.

For ``list``, the picker, ``show``, ``resume`` and the browser. No conversation is ever opened.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from snapshot_plugin.errors import NotFound, SnapshotError
from snapshot_plugin.model.ids import as_reference, is_companion
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.text import plain, several

if TYPE_CHECKING:
    from pathlib import Path

    from snapshot_plugin.live.lease import Owner
    from snapshot_plugin.live.owners import Ownership
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "ArchivedStore",
    "Hidden",
    "HiddenSession",
    "Holder",
    "Listed",
    "Selected",
    "Selection",
    "SessionRow",
    "archived_stores",
    "every_row",
    "here",
    "holder_of",
    "listed",
    "marks",
    "reason",
    "row_of",
    "rows_at",
    "rows_of",
    "select",
    "session_rows",
    "tagged_before",
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


# Which of them ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """What a user asked to see. `below` is a directory: only sessions that ran there or deeper."""

    below: str | None = None
    unplaced: bool = True
    """Whether sessions without a directory are shown if `below` is given."""
    agent: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tags: tuple[str, ...] = ()
    tagged_before: frozenset[str] = frozenset()
    """Sessions that have the tags if those of their earlier snapshots count; see `tagged_before`."""
    live: bool = False
    limit: int | None = None


class Filtered(Protocol):
    """The fields that filters read."""

    @property
    def session_id(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def agent(self) -> str | None: ...
    @property
    def cwd(self) -> str | None: ...
    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def snapshot_tags(self) -> tuple[str, ...]: ...
    @property
    def changed_at(self) -> datetime: ...


class Hidden(NamedTuple):
    """A session that is not shown, and the filter that hides it."""

    row: SessionRow
    by: str
    why: str


class Selected(NamedTuple):
    """The sessions that are shown, and those that are not."""

    shown: tuple[SessionRow, ...]
    hidden: tuple[Hidden, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many sessions each reason hides."""
        return dict(Counter(hidden.by for hidden in self.hidden))


def select(rows: Sequence[SessionRow], selection: Selection) -> Selected:
    """Split sessions into those shown and those hidden, each hidden one with the first reason that applies."""
    shown: list[SessionRow] = []
    hidden: list[Hidden] = []
    for row in rows:
        by = reason(row, selection) or (_NOT_LIVE if selection.live and not row.live else None)
        if by is None and selection.limit is not None and len(shown) >= selection.limit:
            by = ("limit", f"only the newest {selection.limit} are shown")
        if by:
            hidden.append(Hidden(row, *by))
        else:
            shown.append(row)
    return Selected(tuple(shown), tuple(hidden))


_NOT_LIVE = ("live", "no process runs it")


def reason(row: Filtered, selection: Selection) -> tuple[str, str] | None:
    """The filter that hides a session, and the reason; None if none does. `select` checks whether it is live."""
    return next(_reasons(row, selection), None)


def _reasons(row: Filtered, selection: Selection) -> Iterator[tuple[str, str]]:
    if is_companion(row.session_id):
        yield "memory", "the working memory of another session"
    if selection.below and not (_is_below(row.cwd, selection.below) if row.cwd else selection.unplaced):
        yield "cwd", f"it ran in {row.cwd or 'an unknown directory'}"
    if selection.agent and selection.agent.lower() not in (row.agent or "").lower():
        yield "agent", f"its agent is {row.agent or 'not known'}"
    if selection.since and row.changed_at < selection.since:
        yield "date", "last changed before --since"
    if selection.until and row.changed_at > selection.until:
        yield "date", "last changed after --until"
    if row.session_id not in selection.tagged_before and not _has_tags(row, selection.tags):
        yield "tag", f"its tags are {', '.join((*row.tags, *row.snapshot_tags)) or 'none'}"


def _has_tags(row: Filtered, tags: Sequence[str]) -> bool:
    return set(tags) <= {*row.tags, *row.snapshot_tags}


async def tagged_before(store: SnapshotStore, rows: Sequence[Filtered], tags: Sequence[str]) -> frozenset[str]:
    """The sessions that have all *tags* only if those of their earlier snapshots count. Reads their histories."""
    found = set()
    for row in rows:
        if row.seq > 1 and not _has_tags(row, tags):
            with suppress(SnapshotError):  # deleted meanwhile, or unreadable
                history = await store.history(row.session_id)
                if set(tags) <= {*row.tags, *(tag for meta in history for tag in meta.snapshot_tags)}:
                    found.add(row.session_id)
    return frozenset(found)


@cache
def _is_below(place: str, directory: str) -> bool:
    try:
        real, above = os.path.realpath(place), os.path.realpath(directory)
    except ValueError:  # a name that no file can have
        return False
    return real == above or real.startswith(above.rstrip("/") + "/")


def here() -> str:
    """The project the user is in: the root of the git work tree, or else the current directory.

    The home directory and its parents are never a project, even if they are in a repository.
    """
    try:
        directory = start = os.getcwd()  # noqa: PTH109 — text, and no pathlib at start-up
    except FileNotFoundError as error:
        raise NotFound(
            "the current directory is gone", hint="change to a directory that exists, or look everywhere"
        ) from error
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 — as above
    while directory not in {home, os.path.dirname(directory)}:  # noqa: PTH120 — as above
        if os.path.exists(os.path.join(directory, ".git")):  # noqa: PTH110, PTH118 — as above
            return directory
        directory = os.path.dirname(directory)  # noqa: PTH120 — as above
    return start


# The list -----------------------------------------------------------------------------------------------------


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
