"""``asnap list``: every session there is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.document import Document, Part
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.cli.scope import Selected, Selection, filter_options, here, select
from snapshot_plugin.cli.sessions import SessionRow, marks, session_rows
from snapshot_plugin.cli.text import ago, count, plain, size, width
from snapshot_plugin.cli.unexpected import tell_unexpected

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Listed", "command"]

_BY = {
    "cwd": "elsewhere",
    "agent": "by --agent",
    "date": "by date",
    "tag": "by --tag",
    "live": "not live",
    "limit": "by --limit",
    "memory": "working memory",
}
_STATE_COLOURS = {"damaged": "red", "encrypted": "yellow", "live": "green", "ended": "yellow"}
_READABLE = 14
_UNTITLED = "(untitled)"


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

    def show(self, out: Output) -> None:
        """See `Document`."""
        if self.sessions:
            _show_table(out, self.sessions, self.as_of, everywhere=self.below is None)
        for row in self.sessions:
            if row.state != "ok":
                out.note(f"{row.short_id} is {row.state}: {plain(row.problem or '')} (asnap check {row.short_id})")
        if self.hidden_sessions:
            columns = (Column("NOT SHOWN"), Column("TITLE", flexible=True), Column("WHY", flexible=True))
            out.table(columns, [(h.session_id, plain(h.title or ""), plain(h.why)) for h in self.hidden_sessions])
        out.note(self._footer(), dim=True)
        if not self.sessions and "cwd" in self.hidden:
            out.note(f"none ran in {plain(self.below or '')}; all of them: asnap list --all")

    def _footer(self) -> str:
        shown, total = len(self.sessions), self.total
        parts = [
            f"{shown} of {total} sessions" if shown != total else f"{total} sessions" if total != 1 else "1 session"
        ]
        hidden = [f"{number} {_BY[by]}" for by, number in self.hidden.items()]
        if hidden:
            parts.append("hidden: " + ", ".join(hidden))
        parts.append(f"store {size(self.size_bytes)}" + (", encrypted" if self.encrypted else ""))
        return " · ".join(parts)


class Ids(Listed):
    """The same, shown as ids alone."""

    end: ClassVar[bytes] = b"\n"

    def show(self, out: Output) -> None:
        """See `Document`."""
        for row in self.sessions:
            out.raw(row.session_id.encode() + self.end)


class NulIds(Ids):
    """The same, each followed by a NUL, for ``xargs -0``."""

    end: ClassVar[bytes] = b"\0"


@declare(
    "list",
    section="Find",
    answer=Listed,
    examples=(
        ("asnap list", "the sessions of this project"),
        ("asnap list --all --since 3d", "everywhere, what changed in the last three days"),
        ("asnap list --all --why", "what is not shown, and why"),
        ("asnap list --ids -0 --tag old | xargs -0 -n1 asnap show", "for other commands"),
    ),
    exits=(7, 10),
)
@click.option(
    "-a", "--all", "everywhere", is_flag=True, help="Sessions of every directory, not just of this project."
)
@click.option("--cwd", metavar="DIR", help="Only sessions that ran in DIR or below.")
@filter_options
@click.option("--live", is_flag=True, help="Only those a process has right now.")
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="At most N, the newest.")
@click.option("--why", is_flag=True, help="Also name the sessions that are not shown, each with the reason.")
@click.option("--ids", is_flag=True, help="Only whole ids, one per line.")
@click.option("-0", "--print0", "nul", is_flag=True, help="Only whole ids, each followed by NUL.")
async def command(call: Call, *, why: bool, ids: bool, nul: bool, **asked: Any) -> Listed:
    """List every session there is, the last changed first.

    Without options: those of this project (the git work tree, or the current directory and below). What is not
    shown is counted on the last line, damaged sessions are shown as damaged, and no conversation is opened.
    """
    selection = _selection(call, **asked)
    async with call.store() as store:
        rows = await session_rows(store)
        encrypted = _is_encrypted(store)
    tell_unexpected(call, rows)
    selected = select(rows, selection)
    kind = NulIds if nul else Ids if ids else Listed
    return kind(
        sessions=selected.shown,
        total=len(rows),
        hidden=selected.counts,
        hidden_sessions=_named(selected) if why else (),
        below=selection.below,
        size_bytes=sum(row.size_bytes for row in rows),
        encrypted=encrypted,
        as_of=call.now,
    )


def _selection(
    call: Call,
    *,
    everywhere: bool,
    cwd: str | None,
    agent: str | None,
    since: str | None,
    until: str | None,
    tags: tuple[str, ...],
    live: bool,
    limit: int | None,
) -> Selection:
    from snapshot_plugin.cli.moments import moment  # noqa: PLC0415 — most lists have no dates

    return Selection(
        below=cwd or (None if everywhere else here()),
        agent=agent,
        since=moment(since, call.now) if since else None,
        until=moment(until, call.now, end=True) if until else None,
        tags=tags,
        live=live,
        limit=limit,
    )


def _is_encrypted(store: SnapshotStore) -> bool:
    path = getattr(store, "path", None)
    return path is not None and (path / "keys").is_dir()


def _named(selected: Selected) -> tuple[HiddenSession, ...]:
    return tuple(
        HiddenSession(session_id=row.session_id, title=row.title, by=by, why=why)
        for row, by, why in selected.hidden
    )


# The table -----------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    column: Column
    cells: list[str]
    keep: int = 9
    """When the terminal is narrow, the field with the lowest number goes first."""

    @property
    def least(self) -> int:
        """The columns it needs to be of use."""
        widest = max(width(cell) for cell in (self.column.title, *self.cells))
        return min(widest, _READABLE) if self.column.flexible else widest


def _show_table(out: Output, rows: Sequence[SessionRow], now: datetime, *, everywhere: bool) -> None:
    on_terminal = out.columns < 10_000  # noqa: PLR2004 — what `Output` says where there is no limit
    fields = _fields(rows, now, everywhere=everywhere) if on_terminal else _exact_fields(rows)
    while sum(field.least + 2 for field in fields) - 2 > out.columns and any(field.keep < 9 for field in fields):  # noqa: PLR2004 — those that stay
        fields.remove(min(fields, key=lambda field: field.keep))
    out.table([field.column for field in fields], zip(*(field.cells for field in fields), strict=True))


def _fields(rows: Sequence[SessionRow], now: datetime, *, everywhere: bool) -> list[_Field]:
    fields = [
        _Field(Column("ID", style={"fg": "cyan"}), [row.short_id for row in rows]),
        _Field(Column("TITLE", flexible=True), [plain(row.title or "") or _UNTITLED for row in rows]),
        _Field(Column("AGENT", flexible=True), [plain(row.agent or "") for row in rows], keep=4),
        _Field(Column("AGE", right=True), [ago(row.changed_at, now) for row in rows]),
        _Field(Column("TURNS", right=True), [count(row.turns) for row in rows], keep=5),
        _Field(Column("TOKENS", right=True), [count(row.tokens) if row.tokens else "" for row in rows], keep=3),
        _Field(Column("SIZE", right=True, style={"dim": True}), [size(row.size_bytes) for row in rows], keep=2),
        _Field(Column("STATE", flexible=True, style=_state_style), [", ".join(marks(row)) for row in rows]),
        _Field(
            Column("WHERE", flexible=True, style={"dim": True}),
            [_where(row) if everywhere else "" for row in rows],
            keep=1,
        ),
    ]
    return [field for field in fields if any(field.cells)]


def _exact_fields(rows: Sequence[SessionRow]) -> list[_Field]:
    """For programs that cut fields out: whole ids, exact times and numbers."""
    return [
        _Field(Column("ID"), [row.session_id for row in rows]),
        _Field(Column("TITLE"), [plain(row.title or "") for row in rows]),
        _Field(Column("AGENT"), [plain(row.agent or "") for row in rows]),
        _Field(Column("CHANGED"), [row.changed_at.isoformat(timespec="seconds") for row in rows]),
        _Field(Column("TURNS"), [str(row.turns) for row in rows]),
        _Field(Column("TOKENS"), [str(row.tokens) for row in rows]),
        _Field(Column("SIZE"), [str(row.size_bytes) for row in rows]),
        _Field(Column("STATE"), [",".join(marks(row)) for row in rows]),
        _Field(Column("WHERE"), [plain(row.cwd or "") for row in rows]),
    ]


def _state_style(cell: str) -> dict[str, Any]:
    word = cell.partition(" ")[0].rstrip(",")
    return {"fg": _STATE_COLOURS[word]} if word in _STATE_COLOURS else {}


def _where(row: SessionRow) -> str:
    import os  # noqa: PLC0415 — for the home directory alone

    home = os.path.expanduser("~")  # noqa: PTH111 — text
    cwd = plain(row.cwd or "")
    return "~" + cwd.removeprefix(home) if cwd == home or cwd.startswith(home + "/") else cwd
