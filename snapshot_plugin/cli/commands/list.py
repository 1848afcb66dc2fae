"""``asnap list``: list sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import Printed, filter_options
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import WIDE, Column, Output
from snapshot_plugin.cli.unexpected import tell_unexpected
from snapshot_plugin.errors import StoreNotFound
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.listed import ArchivedStore, Listed, archived_stores, listed
from snapshot_plugin.operations.scope import Selection, here, tagged_before
from snapshot_plugin.operations.session_rows import SessionRow, every_row, marks, rows_at, unsaved_rows
from snapshot_plugin.operations.text import ago, count, long_ago, plain, several, size

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta

__all__ = ["command"]

_BY = {
    "cwd": "elsewhere",
    "agent": "by --agent",
    "date": "by date",
    "tag": "by --tag",
    "live": "not live",
    "limit": "by --limit",
    "memory": "working memory",
}
_STATE_COLOURS = {"damaged": "red", "encrypted": "yellow", "too-new": "yellow", "live": "green", "ended": "yellow"}
_BEGIN = (
    "no session was recorded yet; begin with one of:",
    "  asnap chat -- your-agent acp   talk to an ACP agent here, recorded",
    "  asnap run -- your-agent acp    where your editor starts your agent",
    "  asnap import FILE...           sessions of Claude Code, Codex, OpenCode, …",
    "  asnap demo                     see a session survive a kill",
)


def show_table(answer: Listed, out: Output) -> None:
    """Print sessions as a table."""
    everywhere, exact = answer.below is None, out.columns == WIDE
    cells = (_exact_cells(r) if exact else _cells(r, answer.as_of, everywhere=everywhere) for r in answer.sessions)
    out.table(_COLUMNS, cells)
    for row in answer.sessions:
        if row.state != "ok":
            out.note(_trouble(row, out))
    columns = (Column("NOT SHOWN"), Column("TITLE", flexible=True), Column("WHY", flexible=True))
    out.table(columns, [(h.session_id, plain(h.title or ""), plain(h.why)) for h in answer.hidden_sessions])
    for store in answer.archived:
        out.note(_lag(store, answer.as_of))
    out.note(_footer(answer), dim=True)
    if not answer.total:
        for line in _BEGIN:
            out.note(line)
    if not answer.sessions and "cwd" in answer.hidden:
        out.note(f"none ran in {plain(answer.below or '')}; all of them: {out.run('asnap list --all')}")


def _footer(answer: Listed) -> str:
    shown, total = len(answer.sessions), answer.total
    parts = [f"{shown} of {total} sessions" if shown != total else several(total, "session")]
    hidden = [f"{number} {_BY[by]}" for by, number in answer.hidden.items()]
    if hidden:
        parts.append("hidden: " + ", ".join(hidden))
    parts.append(f"store {size(answer.size_bytes)}" + (", encrypted" if answer.encrypted else ""))
    return " · ".join(parts)


def show_families(answer: Listed, out: Output) -> None:
    """Print sessions as a table, each fork below its parent."""
    show_table(replace(answer, sessions=tuple(_as_families(answer.sessions))), out)


def show_ids(answer: Listed, out: Output, end: bytes = b"\n") -> None:
    """Print session ids alone, as commands take them."""
    for row in answer.sessions:
        out.raw(as_reference(row.session_id).encode() + end)


def show_ids_for_xargs(answer: Listed, out: Output) -> None:
    """Print session ids, each followed by a NUL, for ``xargs -0``."""
    show_ids(answer, out, b"\0")


@declare(
    "list",
    answer=Listed,
    show=show_table,
    examples=(
        ("asnap list", "the sessions of this project"),
        ("asnap list --all --since 3d", "everywhere, what changed in the last three days"),
        ("asnap list --all --why", "the sessions that are not shown, and why"),
        ("asnap list --tree", "which session was forked from which"),
        ("asnap list --ids -0 --tag old | xargs -0 -n1 asnap show", "for other commands"),
    ),
    exits=(7, 10),
)
@click.option(
    "-a", "--all", "everywhere", is_flag=True, help="Sessions of every directory, not just of this project."
)
@click.option("--cwd", metavar="DIR", help="Only sessions that ran in DIR or below.")
@filter_options
@click.option("--live", is_flag=True, help="Only live sessions.")
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="At most N, the newest.")
@click.option("--why", is_flag=True, help="Also name the sessions that are not shown, each with the reason.")
@click.option("--tree", is_flag=True, help="Forks below the sessions they came from.")
@click.option("--ids", is_flag=True, help="Only whole ids, one per line.")
@click.option("-0", "--print0", "nul", is_flag=True, help="Only whole ids, each followed by NUL.")
def command(call: Call, *, why: bool, tree: bool, ids: bool, nul: bool, **asked: Any) -> Printed:
    """List sessions, the last changed first.

    Without options: sessions of this project (the git work tree, or the current directory and below). Sessions that
    are not shown are counted on the last line. No conversation is opened.
    """
    selection = _selection(call, **asked)
    rows, encrypted, archived = _rows(call)
    if rows and selection.tags:
        selection = _with_earlier_tags(call, rows, selection)
    tell_unexpected(call, rows)
    show = show_ids_for_xargs if nul else show_ids if ids else show_families if tree else show_table
    found = listed(rows, selection, why=why, encrypted=encrypted, archived=archived, as_of=call.now)
    return Printed(found, show)


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
    from snapshot_plugin.operations.moments import moment

    return Selection(
        below=cwd or (None if everywhere else here()),
        agent=agent,
        since=moment(since, call.now) if since else None,
        until=moment(until, call.now, end=True) if until else None,
        tags=tags,
        live=live,
        limit=limit,
    )


def _with_earlier_tags(call: Call, rows: Sequence[SessionRow], selection: Selection) -> Selection:
    import anyio

    async def tagged() -> frozenset[str]:
        async with call.opened(background=False) as store:
            return await tagged_before(store, rows, selection.tags)

    return replace(selection, tagged_before=anyio.run(tagged))


def _rows(call: Call) -> tuple[list[SessionRow], bool, tuple[ArchivedStore, ...]]:
    """Return every session, whether the store is encrypted, and the stores it is an archive of.

    A store on disk is listed without an event loop, which takes longer to load.
    """
    if "://" in call.config.storage_path:
        return _rows_elsewhere(call)

    root = Path(call.config.storage_path).absolute()
    if not root.exists():
        if call.config.origin("storage_path").layer == "default":  # nothing was recorded yet: not an error
            return [], False, ()
        raise StoreNotFound(f"there is no store at {root}")
    is_sealed = (root / "keys").is_dir()
    rows = rows_at(root, call.on_disk().sync.list() if is_sealed or not _is_plain(root, call) else _plainly(root))
    return [*unsaved_rows(root, rows), *rows], is_sealed, ()


def _is_plain(root: Path, call: Call) -> bool:
    from snapshot_plugin.store.marker import is_store, read_marker

    if call.config.encryption or not is_store(root):
        return False
    return not read_marker(root)["encrypted"] and call.key() is None


def _plainly(root: Path) -> list[SnapshotMeta]:
    """List without opening the store, which would take as long as reading a thousand sessions."""
    from snapshot_plugin.store.listing import listed as metas
    from snapshot_plugin.store.segments import SegmentFiles

    return metas(SegmentFiles(root))


def _rows_elsewhere(call: Call) -> tuple[list[SessionRow], bool, tuple[ArchivedStore, ...]]:
    import anyio
    import anyio.to_thread

    async def rows() -> tuple[list[SessionRow], bool, tuple[ArchivedStore, ...]]:
        async with call.store() as store:
            archived = await anyio.to_thread.run_sync(archived_stores, store, call.now)
            return await every_row(store, await store.list()), getattr(store, "has_key", False), archived

    try:
        return anyio.run(rows)
    except StoreNotFound as error:
        if not error.is_place_there:
            raise
        return [], False, ()


def _lag(store: ArchivedStore, now: datetime) -> str:
    behind = f"; not in it: {plain(', '.join(store.behind))}" if store.behind else ""
    return f"archive of {plain(store.host)}, last copied {long_ago(store.as_of, now)}{behind}"


def _trouble(row: SessionRow, out: Output) -> str:
    remedy = row.next or ""
    if remedy.startswith("asnap"):
        remedy = out.run(remedy)
    return f"{row.short_id} is {row.state.replace('_', ' ')}: {plain(row.problem or '')} ({remedy})"


def _as_families(rows: Sequence[SessionRow]) -> Iterator[SessionRow]:
    """Order forks below their parents, depth first; a fork whose parent is not shown stands alone."""
    from snapshot_plugin.model.lineage import family_tree
    from snapshot_plugin.model.snapshot import Parent

    def parent(row: SessionRow) -> Parent | None:
        return Parent(session_id=row.parent, seq=0, message_index=0) if row.parent else None

    known = {row.session_id: row for row in rows}
    for branch in family_tree((row.session_id, parent(row)) for row in rows):
        row, line = known[branch.session_id], "│ " * (branch.depth - 1) + "└ "
        yield replace(row, title=f"{line}{row.name}") if branch.depth else row


# The table -----------------------------------------------------------------------------------------------


def _state_style(cell: str) -> dict[str, Any]:
    word = cell.partition(" ")[0].rstrip(",")
    return {"fg": _STATE_COLOURS[word]} if word in _STATE_COLOURS else {}


_COLUMNS = (
    Column("ID", style={"fg": "cyan"}),
    Column("TITLE", flexible=True),
    Column("AGENT", flexible=True, rank=4),
    Column("AGE", right=True),
    Column("MSGS", right=True, rank=6),
    Column("TURNS", right=True, rank=5),
    Column("TOKENS", right=True, rank=3),
    Column("SIZE", right=True, style={"dim": True}, rank=2),
    Column("STATE", flexible=True, style=_state_style),
    Column("WHERE", flexible=True, style={"dim": True}, rank=1),
)


def _cells(row: SessionRow, now: datetime, *, everywhere: bool) -> Sequence[str]:
    return (
        row.short_id,
        row.name,
        plain(row.agent or ""),
        ago(row.changed_at, now),
        count(row.messages) if row.messages else "",
        count(row.turns) if row.counts_turns else "",
        count(row.tokens) if row.tokens else "",
        size(row.size_bytes),
        ", ".join(marks(row)),
        _where(row) if everywhere else "",
    )


def _exact_cells(row: SessionRow) -> Sequence[str]:
    """Cells for programs: whole ids, exact times and numbers."""
    return (
        as_reference(row.session_id),
        plain(row.title or row.opening or ""),
        plain(row.agent or ""),
        row.changed_at.isoformat(timespec="seconds"),
        str(row.turns),
        str(row.tokens),
        str(row.size_bytes),
        ",".join(marks(row)),
        plain(row.cwd or ""),
        str(row.messages),  # last: programs count fields from the left
    )


def _where(row: SessionRow) -> str:
    import os

    home = os.path.expanduser("~")  # noqa: PTH111 — text
    cwd = plain(row.cwd or "")
    return "~" + cwd.removeprefix(home) if cwd == home or cwd.startswith(home + "/") else cwd
