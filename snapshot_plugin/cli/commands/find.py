"""``list``, ``show``, ``search``, ``stats`` and ``diff``: find sessions, read and compare them.

``asnap list`` is the command people wait for most: what only the others need is imported where it is used.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import Printed, filter_options
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import WIDE, Column, Output
from snapshot_plugin.cli.remembered import tell_unexpected
from snapshot_plugin.errors import InvalidInput, StoreNotFound
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.references import find
from snapshot_plugin.operations.sessions import (
    ArchivedStore,
    Listed,
    Selection,
    SessionRow,
    archived_stores,
    every_row,
    here,
    listed,
    marks,
    rows_at,
    tagged_before,
    unsaved_rows,
)
from snapshot_plugin.operations.text import (
    ago,
    clock_time,
    count,
    cut,
    long_ago,
    money,
    pad,
    plain,
    several,
    size,
    span,
    width,
)

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.operations.comparing import ChangedSetting, Compared, Side, Step
    from snapshot_plugin.operations.conversation import MessagePart, Said
    from snapshot_plugin.operations.searching import (
        MessageHit,
        Searched,
        SearchRequest,
        SessionHits,
    )
    from snapshot_plugin.operations.showing import About, Shown, SnapshotRow
    from snapshot_plugin.operations.statistics import GroupRow, Statistics, Storage

__all__ = [
    "Styler",
    "context_line",
    "diff_command",
    "fact_lines",
    "lines_of",
    "list_command",
    "search_command",
    "show_command",
    "stats_command",
]

# asnap list ---------------------------------------------------------------------------------------------------


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
    cells = (
        _exact_cells(r) if exact else _list_cells(r, answer.as_of, everywhere=everywhere) for r in answer.sessions
    )
    out.table(_LIST_COLUMNS, cells)
    for row in answer.sessions:
        if row.state != "ok":
            out.note(_trouble(row, out))
    columns = (Column("NOT SHOWN"), Column("TITLE", flexible=True), Column("WHY", flexible=True))
    out.table(columns, [(h.session_id, plain(h.title or ""), plain(h.why)) for h in answer.hidden_sessions])
    for store in answer.archived:
        out.note(_lag(store, answer.as_of))
    out.note(_list_footer(answer), dim=True)
    if not answer.total:
        for line in _BEGIN:
            out.note(line)
    if not answer.sessions and "cwd" in answer.hidden:
        out.note(f"none ran in {plain(answer.below or '')}; all of them: {out.run('asnap list --all')}")


def _list_footer(answer: Listed) -> str:
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
def list_command(call: Call, *, why: bool, tree: bool, ids: bool, nul: bool, **asked: Any) -> Printed:
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
    from snapshot_plugin.operations.text import moment

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


_LIST_COLUMNS = (
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


def _list_cells(row: SessionRow, now: datetime, *, everywhere: bool) -> Sequence[str]:
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


# asnap show ---------------------------------------------------------------------------------------------------


def show_session(answer: Shown, out: Output) -> None:
    """Print a session."""
    if answer.history:
        out.table(_SHOW_COLUMNS, [_show_cells(row, answer.as_of) for row in answer.history])
        return
    out.pages(itertools.chain(_summary(answer, out), _transcript(answer, out)))


def _summary(answer: Shown, out: Output) -> Iterator[str]:
    yield out.style(answer.session.name, bold=True)
    if not answer.about:
        yield answer.session.session_id
    else:
        yield from fact_lines(answer.session, answer.about, answer.as_of)
    if answer.snapshot != answer.session.seq:
        yield f"this is snapshot {answer.snapshot}; the newest is {answer.session.seq}"
    yield ""


def _transcript(answer: Shown, out: Output) -> Iterator[str]:
    for said in answer.messages:
        yield from lines_of(said, out.style)


_SHOW_COLUMNS = (
    Column("SNAPSHOT", right=True),
    Column("AGE", right=True),
    Column("TRIGGER", flexible=True),
    Column("MESSAGES", right=True, rank=4),
    Column("TURNS", right=True, rank=3),
    Column("TOKENS", right=True, rank=1),
    Column("SIZE", right=True, rank=2),
    Column("TAGS", flexible=True, rank=5),
    Column("STATE", flexible=True, style={"fg": "red"}),
)


def _show_cells(row: SnapshotRow, now: datetime) -> tuple[str, ...]:
    return (
        str(row.seq),
        ago(row.saved_at, now),
        plain(row.trigger),
        str(row.messages),
        str(row.turns),
        count(row.tokens) if row.tokens else "",
        size(row.size_bytes),
        plain(", ".join(row.tags)),
        "" if row.state == "ok" else plain(f"{row.state}: {row.problem or ''}"),
    )


@declare(
    "show",
    answer="showing.Shown",
    show=show_session,
    examples=(
        ("asnap show latest", "the newest session: summary and conversation"),
        ("asnap show 01jd --history", "its snapshots, newest first"),
        ("asnap show 01jd@5 --from 20 --tools", "as it was in snapshot 5, from message 20, tools unfolded"),
        ("asnap show 01jd --raw | jq .config", "the whole snapshot as JSON"),
        ("asnap list --ids -n 1 | asnap show -", "the newest one of this project"),
    ),
    exits=(4, 5, 7, 10),
)
@click.argument("ref", metavar="REF")
@click.option("--history", "past", is_flag=True, help="The timeline of snapshots in place of the conversation.")
@click.option("--tools", is_flag=True, help="Show the input and output of tools.")
@click.option("--message", type=click.IntRange(min=1), metavar="N", help="Only message N.")
@click.option(
    "--from", "first", type=click.IntRange(min=1), metavar="N", help="The conversation from message N on."
)
@click.option("--summary", is_flag=True, help="No conversation.")
@click.option("--raw", is_flag=True, help="The snapshot itself, as stored, as one JSON document.")
async def show_command(
    call: Call,
    *,
    ref: str,
    past: bool,
    tools: bool,
    message: int | None,
    first: int | None,
    summary: bool,
    raw: bool,
) -> Shown | None:
    """Show a session: its summary, then the conversation.

    On a terminal, more than a screenful goes through $PAGER. Tools are folded to a line each. REF: an id or its
    beginning, a name, latest, latest~2, tag:x; with @N for one of its snapshots; - reads it from stdin.
    """
    from snapshot_plugin.operations.showing import history, show, shown

    if ref == "-":
        ref = sys.stdin.readline().strip()
    async with call.store() as store:
        target = await find(store, ref)
        if past:
            return await history(call.work, store, target)
        stored, answer = await show(call.work, store, target)
    if raw:
        _print_raw(call, stored.snapshot)
        return None
    if message is not None or first is not None:
        answer = replace(answer, about=None)
    said = () if summary else shown(stored, tools=tools, message=message, first=first)
    return replace(answer, messages=said)


def _print_raw(call: Call, snapshot: SessionSnapshot) -> None:
    import json

    # Escaped to ASCII on a terminal: the snapshot holds untrusted text, byte for byte.
    document = {"version": snapshot.version, **snapshot.raw()}  # without it, the document cannot be imported
    text = json.dumps(document, ensure_ascii=call.out.is_terminal, indent=2 if call.out.is_terminal else None)
    call.out.raw(text.encode("utf-8", "surrogatepass") + b"\n")


_NAME = 10


def fact_lines(row: SessionRow, known: About, now: datetime) -> Iterator[str]:
    """Yield the known facts, one per line."""
    for name, value in _facts(row, known, now):
        if value:
            yield f"{pad(name, _NAME)}{value}"


def _facts(row: SessionRow, known: About, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", row.session_id
    yield (
        "agent",
        _joined(
            known.agent, known.agent_version, " ".join(known.agent_command) and f"({' '.join(known.agent_command)})"
        ),
    )
    yield "where", _joined(row.cwd, *known.directories)
    begun = f", begun {clock_time(row.created_at)}" if row.created_at else ""
    yield "changed", f"{clock_time(row.changed_at)} ({long_ago(row.changed_at, now)}){begun}"
    yield (
        "size",
        _dotted(
            row.counts_turns and known.turns and several(known.turns, "turn"),
            several(known.messages, "message"),
            known.tokens and f"{count(known.tokens)} tokens used",
            money(known.cost, known.currency),
        ),
    )
    yield "context", context_line(known)
    yield (
        "settings",
        _dotted(known.mode and f"mode {plain(known.mode)}", known.model and f"model {plain(known.model)}"),
    )
    yield "servers", _joined(*known.mcp_servers)
    yield "task", plain(known.task or "")
    yield "plan", f"{known.plan_done} of {known.plan_total} done" if known.plan_total else ""
    yield "tags", _dotted(", ".join(map(plain, (*row.tags, *row.snapshot_tags))), row.pinned and "pinned")
    yield "note", plain(known.note or "")
    yield "parent", f"{row.parent} at message {known.forked_at}" if row.parent else ""
    yield "state", _state(row, now)
    yield "snapshot", f"{row.seq} ({plain(row.trigger)}), {size(row.size_bytes)} stored"
    yield from _restore_facts(known)


def _restore_facts(known: About) -> Iterator[tuple[str, str]]:
    if known.last_restore:
        yield (
            "restored",
            plain(
                _dotted(
                    known.last_restore.grade,
                    several(known.last_restore.messages, "message"),
                    *known.last_restore.tried,
                )
            ),
        )
        yield from (("", plain(text)) for text in (*known.last_restore.notices, *known.last_restore.differences))
    yield from (("repair", plain(notice)) for notice in known.notices)
    if known.withheld:
        yield "not kept", plain(f"{', '.join(known.withheld)} (may be secrets)")
    yield from (("damaged", plain(damage)) for damage in known.skipped)


def context_line(known: About) -> str:
    """Say how much text the model has to read."""
    about_ = "about " if known.context_is_estimate else ""
    of = f" of {count(known.context_size)}" if known.context_size else ""
    return f"{about_}{count(known.context_tokens)}{of} tokens"


def _state(row: SessionRow, now: datetime) -> str:
    if row.live:
        who = f"process {row.live.pid} on {plain(row.live.host)} ({plain(' '.join(row.live.command))})"
        return f"live: {who} has had it for {span(row.live.since, now)}"
    words = [word for word in marks(row) if word != "pinned"]
    return plain(": ".join(part for part in (", ".join(words), row.problem) if part))


def _joined(*parts: str | None) -> str:
    return plain(" ".join(part for part in parts if part))


def _dotted(*parts: Any) -> str:
    return " · ".join(str(part) for part in parts if part)


_COLOURS = {"user": "green", "assistant": "blue", "system": "magenta", "tool": "yellow"}
_MARKS = {"completed": "✓", "failed": "✗"}


class Styler(Protocol):
    """Colours text, if colours are wanted."""

    def __call__(self, text: str, **style: Any) -> str:
        """Return *text* in colour, or unchanged."""


def lines_of(said: Said, style: Styler) -> Iterator[str]:
    """Return a message as lines, with terminal control characters made inert."""
    when = f" · {clock_time(said.at)}" if said.at else ""
    yield style(f"── {said.number} · {said.role}{when} ──", fg=_COLOURS.get(said.role), bold=True)
    for piece in said.pieces:
        yield from _piece_lines(piece, style)
    yield ""


def _piece_lines(piece: MessagePart, style: Styler) -> Iterator[str]:
    if piece.kind == "text":
        yield from plain(piece.text, lines=True).split("\n")
    elif piece.kind == "thought":
        yield from (style(f"  │ {line}", dim=True) for line in plain(piece.text, lines=True).split("\n"))
    elif piece.kind == "tool":
        mark = _MARKS.get(piece.status or "", "…")
        yield style(f"  {mark} {plain(piece.text)}", fg="yellow")
        for line in plain(piece.detail, lines=True).split("\n") if piece.detail else ():
            yield style(f"      {line}", dim=True)
    else:
        yield style(f"  [{plain(piece.kind)} {plain(piece.text)}]".replace(" ]", "]"), dim=True)


# asnap search -------------------------------------------------------------------------------------------------


_LIMIT = 20
_SESSION = "session"


def show_hits(answer: Searched, out: Output) -> None:
    """Print the hits."""
    for session in answer.sessions:
        found_in = (session.session_id, session.snapshot)
        hits = [hit for hit in answer.hits if (hit.session_id, hit.snapshot) == found_in]
        if hits and out.is_terminal:
            _show_session(answer, out, session, hits)
        for hit in () if out.is_terminal else hits:
            out.line("\t".join(_search_cells(hit, session)))
    out.note(_search_footer(answer), dim=True)
    if answer.query.isupper() and "NOT" in answer.query.split():  # in "404 NOT FOUND" the capitals are plain words
        out.note(
            f"words after NOT were excluded; to search for the whole text: asnap search {_phrase(answer.query)}"
        )


def _show_session(answer: Searched, out: Output, session: SessionHits, hits: Sequence[MessageHit]) -> None:
    from snapshot_plugin.operations.searching import jump_to

    name = plain(session.title or "") or "(untitled)"
    about = " · ".join(filter(None, (plain(session.agent or ""), ago(session.changed_at, answer.as_of))))
    short, told = plain(session.short_id), cut(f"{name} · {about}", out.columns - len(session.short_id) - 2)
    out.line(f"{out.style(short, fg='cyan', bold=True)}  {out.style(told, bold=True)}")
    for hit in hits:
        head = f"  {pad(str(hit.message or ''), 5, right=True)} {pad(hit.role or _SESSION, 10)}"
        out.line(head + _marked(hit, out, out.columns - width(head)))
        out.line(f"{' ' * 8}{jump_to(session.short_id, hit.message)}", dim=True)
    if session.hits > len(hits):
        all_of_them = f"asnap search {_quoted(answer.query)} {_quoted(session.short_id)}"
        out.line(f"{' ' * 8}{session.hits - len(hits)} more: {all_of_them}", dim=True)


def _search_footer(answer: Searched) -> str:
    found = f"{several(answer.total_hits, 'hit')} in {several(answer.total_sessions, 'session')}"
    parts = [f"{found} of {answer.searched} searched"]
    if len(answer.hits) < answer.total_hits:
        parts.append(f"{len(answer.hits)} shown; --limit shows more")
    if answer.hidden:
        parts.append("not searched: " + ", ".join(f"{count} by {by}" for by, count in answer.hidden.items()))
    return " · ".join(parts)


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(plain(text))


def _phrase(query: str) -> str:
    words = query.replace('"', " ")
    return _quoted(f'"{words}"')


def _search_cells(hit: MessageHit, session: SessionHits) -> tuple[str, ...]:
    """Cells for programs: whole ids, exact times, matches between asterisks."""
    from snapshot_plugin.operations.searching import at_snapshot

    when = (hit.at or session.changed_at).isoformat(timespec="seconds")
    text = "".join(f"**{part}**" if is_match else part for part, is_match in _parts(hit))
    ref = at_snapshot(as_reference(hit.session_id), hit.snapshot)
    return ref, str(hit.message or ""), hit.role or _SESSION, when, text


def _parts(hit: MessageHit, start: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield the snippet from *start* on, match by match."""
    for first, last in hit.matches:
        yield hit.snippet[start:first], False
        yield hit.snippet[first:last], True
        start = last
    yield hit.snippet[start:], False


def _marked(hit: MessageHit, out: Output, room: int) -> str:
    """Return the snippet in at most *room* columns, matches in colour, or between asterisks without colour."""
    in_colour = out.style("x", bold=True) != "x"
    start = _first_shown(hit, room)
    pieces = ["…"] if start else []
    room -= len(pieces)
    for part, is_match in _parts(hit, start):
        whole = part if in_colour or not is_match else f"**{part}**"
        shown = cut(whole, room)
        pieces.append(out.style(shown, fg="yellow", bold=True) if is_match else shown)
        room -= width(shown)
        if shown != whole or not room:
            break
    return "".join(pieces)


def _first_shown(hit: MessageHit, room: int) -> int:
    """Where to start the snippet so that the first match fits."""
    first, last = hit.matches[0] if hit.matches else (0, 0)
    return first - room // 3 if last > room * 2 // 3 and first > room // 3 else 0


@declare(
    "search",
    answer="searching.Searched",
    show=show_hits,
    examples=(
        ("asnap search 'token refresh'", "messages with both words, in all sessions"),
        ("""asnap search '"connection refused"' --since 7d""", "a phrase, in the last week"),
        ("asnap search 'migrat*' --tool bash --agent gemini", "words that begin so, where a shell was run"),
        ("""asnap search 'timeout OR "gave up"'""", "one or the other"),
        ("asnap search 'deploy NOT staging'", "one without the other"),
        ("asnap search tag:pre-deploy", "sessions with a tag, and snapshots"),
        ("asnap search needle latest", "within one conversation"),
        ("asnap search needle latest --earlier", "also in text that was later compacted away"),
    ),
    exits=(4, 7, 10),
)
@click.argument("query", metavar="QUERY")
@click.argument("ref", metavar="[REF]", required=False)
@click.option("--cwd", metavar="DIR", help="Only sessions that ran in DIR or below.")
@filter_options
@click.option("--tool", metavar="NAME", help="Only messages in which a tool with this in its name was used.")
@click.option(
    "--role", type=click.Choice(["user", "assistant", "system", "tool"]), help="Only messages of this role."
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=_LIMIT,
    metavar="N",
    help=f"At most N hits; {_LIMIT} unless given.",
)
@click.option("--earlier", is_flag=True, help="With REF: also text that was later compacted away.")
@click.option("--rebuild", is_flag=True, help="Rebuild the index first.")
@click.option("--wait", is_flag=True, help="Index every session first, however long that takes.")
@click.option("--index", "only_index", is_flag=True, hidden=True, help="Only bring the index up to date.")
def search_command(
    call: Call, *, query: str, ref: str | None, rebuild: bool, wait: bool, only_index: bool, **options: Any
) -> Searched | None:
    """Search all sessions, or one: words, "a phrase", begin*, this OR that, this NOT that.

    All words must be in the same message; each side of OR is a separate search. Tool calls and
    their output are searched too; secrets are not. Sessions are searched in their newest state, REF@N in that
    snapshot. The index is in the cache directory and is updated automatically; if many sessions are missing in
    it, the others are searched at once, and those are indexed in the background. --since and --until apply to
    messages.
    """
    from snapshot_plugin.operations.searching import SearchRequest, search_ready
    from snapshot_plugin.operations.text import moment

    if only_index:
        _bring_up_to_date(call)
        return None
    if options["earlier"] and ref is None:
        raise InvalidInput("--earlier is about one session", hint="name it: asnap search QUERY REF --earlier")
    since, until = options.pop("since"), options.pop("until")
    asked = SearchRequest(
        query=query,
        ref=ref,
        since=moment(since, call.now) if since else None,
        until=moment(until, call.now, end=True) if until else None,
        **options,
    )
    at_once = ref is None and not (rebuild or wait)
    ready = None if rebuild else search_ready(call.work, asked)
    found = ready or _searched(call, asked, rebuild=rebuild, at_once=at_once)
    if found.unindexed:
        _index_in_background(call)
        left = f"{found.unindexed} more are being indexed in the background"
        call.out.note(f"{left}: search again in a minute, or wait for them with --wait")
    call.out.unreadable(found.unreadable)
    return found


def _bring_up_to_date(call: Call) -> None:
    import anyio

    from snapshot_plugin.operations.searching import index_all

    async def index() -> None:
        async with call.store() as store:
            await index_all(call.work, store)

    anyio.run(index)


def _searched(call: Call, asked: SearchRequest, *, rebuild: bool, at_once: bool) -> Searched:
    import anyio

    from snapshot_plugin.operations.searching import search

    async def searched() -> Searched:
        async with call.store() as store:
            return await search(call.work, store, asked, rebuild=rebuild, at_once=at_once)

    return anyio.run(searched)


def _index_in_background(call: Call) -> None:
    """Update the index in another process, which outlives this one."""
    import subprocess

    from snapshot_plugin.cli.call import our_module

    line = our_module("snapshot_plugin", "search", "--index", "x", "--no-input", "-q")
    place = ["--store", call.place] if call.place else []
    nowhere = subprocess.DEVNULL
    subprocess.Popen(  # noqa: S603 — ourselves
        [*line, *place],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        start_new_session=True,
        env=call.child_environ,
    )


# asnap stats --------------------------------------------------------------------------------------------------


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_STATS_SHOWN = 31
_DRAWN = 120
_BAR = 24
_BUSIEST = 3


def show_statistics(answer: Statistics, out: Output) -> None:
    """Print the statistics."""
    import textwrap

    from snapshot_plugin.cli.charts import plot

    if not out.is_terminal:
        for group in answer.groups:
            cost = f"{group.cost:.6g}"
            numbers = map(str, (group.sessions, group.turns, group.messages, group.tokens))
            out.line("\t".join((plain(group.key), *numbers, cost)))
        for line in (*_about(answer), *_activity(answer)):
            out.note(line)
        return
    for line in (*_about(answer), *_activity(answer)):
        for part in textwrap.wrap(line, out.columns, subsequent_indent=" " * 8, drop_whitespace=False):
            out.line(part)
    days = answer.daily[-min(_DRAWN // 2, out.columns - 12) :]
    if len(days) > 1:
        tokens = [day.tokens for day in days]
        out.line("tokens by day")
        for line in plot(tokens, (days[0].day, days[-1].day), count(max(tokens))):
            out.line(line, fg="blue")
    shown = answer.groups[-_STATS_SHOWN:] if answer.by in ("day", "week") else answer.groups[:_STATS_SHOWN]
    out.table(_columns(answer.by), [_stats_cells(group, max(g.tokens for g in shown)) for group in shown])
    if len(shown) < len(answer.groups):
        out.note(f"{len(answer.groups) - len(shown)} more with --json", dim=True)


def _about(answer: Statistics) -> Iterator[str]:
    total = answer.total
    spent = f"{count(total.tokens)} tokens" + (f", {money(total.cost)}" if total.cost else "")
    numbers = {"session": total.sessions, "turn": total.turns, "message": total.messages}
    counts = ", ".join(several(number, thing) for thing, number in numbers.items())
    yield f"total   {counts}, {spent}"


def _activity(answer: Statistics) -> Iterator[str]:
    from snapshot_plugin.cli.charts import sparkline

    if any(answer.hours):
        yield f"hours   {sparkline(answer.hours)}  0 to 23 h, most at {_busiest(answer.hours, _hour_names())}"
        yield f"days    {sparkline(answer.weekdays)}  most on {_busiest(answer.weekdays, _DAYS)}"
    if answer.topics:
        yield "topics  " + ", ".join(f"{plain(topic.term)} ({topic.sessions})" for topic in answer.topics)
    yield f"store   {_savings(answer.storage)}"


def _hour_names() -> list[str]:
    return [f"{hour} h" for hour in range(24)]


def _busiest(values: Sequence[int], names: Sequence[str]) -> str:
    order = sorted(range(len(values)), key=lambda place: -values[place])[:_BUSIEST]
    return ", ".join(names[place] for place in order if values[place])


def _savings(storage: Storage) -> str:
    parts = [size(storage.store_bytes)]
    for what, plain_size in (
        ("as plain JSON", storage.plain_bytes),
        ("as a copy per snapshot", storage.copies_bytes),
    ):
        if plain_size and storage.store_bytes:
            parts.append(f"{size(plain_size)} {what} ({plain_size / storage.store_bytes:.1f}x)")
    return "; ".join(parts)


def _columns(by: str) -> tuple[Column, ...]:
    return (
        Column(by.upper(), flexible=by == "project"),
        Column("SESSIONS", right=True, rank=3),
        Column("TURNS", right=True, rank=4),
        Column("MESSAGES", right=True, rank=2),
        Column("TOKENS", right=True),
        Column("COST", right=True, rank=5),
        Column("", flexible=True, style={"fg": "blue"}, rank=1),
    )


def _stats_cells(group: GroupRow, top: int) -> tuple[str, ...]:
    from snapshot_plugin.cli.charts import bar

    numbers = (group.sessions, group.turns, group.messages, group.tokens)
    cost = money(group.cost) if group.cost else ""
    return (plain(group.key), *(count(number) for number in numbers), cost, bar(group.tokens, top, _BAR))


@declare(
    "stats",
    answer="statistics.Statistics",
    show=show_statistics,
    examples=(
        ("asnap stats", "tokens and cost day by day, active hours, topics, savings"),
        ("asnap stats --by project --since 30d", "which projects took the last month's tokens"),
        ("asnap stats --by agent --json | jq .groups", "for a script"),
        ("asnap stats --by week --svg tokens.svg", "and a picture"),
    ),
    exits=(7, 10),
)
@click.option(
    "--by", type=click.Choice(["day", "week", "agent", "project"]), default="day", help="What to add up by."
)
@click.option("--since", metavar="WHEN", help="Only what happened since: 30d, 12h, yesterday, 2026-11-01.")
@click.option(
    "--svg", "picture", metavar="FILE", help="Also draw it: an SVG file that needs nothing else; - for stdout."
)
@click.option("--quick", is_flag=True, help="From the list alone: no conversation is opened, no hours and topics.")
async def stats_command(
    call: Call, *, by: Any, since: str | None, picture: str | None, quick: bool
) -> Statistics | None:
    """Show tokens and cost over time, by agent, project, day or week; active hours, topics, sizes and savings.

    The increase since the previous snapshot counts at the time of the snapshot. Times and topics are kept in the
    search index, so only sessions that changed since are opened.
    """
    from snapshot_plugin.operations.statistics import statistics
    from snapshot_plugin.operations.text import moment

    start = moment(since, call.now) if since else None
    async with call.store() as store:
        answer = await statistics(call.work, store, by=by, since=start, quick=quick)
    call.out.unreadable(answer.unreadable)
    if picture is None:
        return answer
    drawing = _drawn(answer).encode()
    if picture == "-":
        call.out.raw(drawing)
        return None
    await _written(picture, drawing)
    call.out.note(f"drawn: {plain(picture)}")
    return answer


def _drawn(answer: Statistics) -> str:
    from snapshot_plugin.cli.charts import Chart, svg

    groups = answer.groups[-_DRAWN:] if answer.by in ("day", "week") else answer.groups[:_DRAWN]
    keys, tokens = [group.key for group in groups], [group.tokens for group in groups]
    costs = [group.cost for group in groups]
    if answer.by == "day":  # a time axis also shows days without activity
        days = answer.daily[-_DRAWN:]
        keys, tokens, costs = [day.day for day in days], [day.tokens for day in days], [day.cost for day in days]
    charts = [Chart(f"tokens by {answer.by}", keys, tokens, [count(number) for number in tokens])]
    if any(costs):
        charts.append(Chart(f"cost by {answer.by}", keys, costs, [money(cost) for cost in costs]))
    if any(answer.hours):
        charts.append(Chart("messages by hour", _hour_names(), answer.hours, list(map(str, answer.hours))))
    heading = f"{answer.total.sessions} sessions, {count(answer.total.tokens)} tokens"
    return svg(heading, charts)


async def _written(place: str, drawing: bytes) -> None:
    import anyio

    from snapshot_plugin.system.files import disk_errors

    with disk_errors(f"writing {place}"):
        await anyio.Path(place).write_bytes(drawing)


# asnap diff ---------------------------------------------------------------------------------------------------


_DIFF_SHOWN = 60


def show_compared(answer: Compared, out: Output) -> None:
    """Print the differences."""
    out.pages(_lines(answer, out.style))


def _lines(answer: Compared, style: Styler) -> Iterator[str]:
    yield style(f"--- {_named(answer.before)}", bold=True)
    yield style(f"+++ {_named(answer.after)}", bold=True)
    yield plain(answer.summary)
    yield from _messages(answer, style)
    yield from _section(style, "plan", [_step_line(step, style) for step in answer.plan])
    yield from _section(style, "settings", [_setting_line(each) for each in answer.settings])
    yield from _section(
        style, "tools", [f"{plain(t.title or t.tool_call_id)}  {t.status or ''}" for t in answer.tools]
    )
    yield from _section(style, "files", [plain(path) for path in answer.files])
    yield from _section(style, "also", [plain(name) for name in answer.other])


def _messages(answer: Compared, style: Styler) -> Iterator[str]:
    same = 0
    for went, came in _changes(answer):
        if went is None and came is None:
            same += 1
            continue
        yield from _unchanged(same, style)
        same = 0
        yield from _prefixed("-", went, style, fg="red")
        yield from _prefixed("+", came, style, fg="green")
    yield from _unchanged(same, style)


def _changes(answer: Compared) -> Iterator[tuple[Said | None, Said | None]]:
    """Yield removed and added messages in the order of the conversation; unchanged ones are left out."""
    gone, come = ({said.number: said for said in side} for side in (answer.removed, answer.added))
    edited = {each.before.number: (each.before, each.after) for each in answer.edited}
    old = new = 1
    while old <= answer.before.messages or new <= answer.after.messages:
        if old in gone:
            yield gone[old], None
            old += 1
        elif new in come:
            yield None, come[new]
            new += 1
        else:
            yield edited.get(old, (None, None))
            old, new = old + 1, new + 1


def show_compared_in_numbers(answer: Compared, out: Output) -> None:
    """Print the differences in numbers."""
    spent = answer.spent
    numbers = {
        "messages": f"+{len(answer.added)} -{len(answer.removed)} ~{len(answer.edited)}",
        "tools": str(len(answer.tools)),
        "files": ", ".join(plain(path) for path in answer.files),
        "plan": str(len(answer.plan)),
        "settings": ", ".join(plain(each.path) for each in answer.settings),
        "turns": f"{spent.turns:+}",
        "tokens": f"{spent.total_tokens:+}",
        "cost": money(spent.cost),
        "other": ", ".join(plain(name) for name in answer.other),
    }
    for name, value in numbers.items():
        out.line(f"{name}\t{value}" if not out.is_terminal else cut(f"{name:<10}{value}", out.columns))


def _named(side: Side) -> str:
    return plain(f"{side.session_id}@{side.seq}" + (f"  {side.title}" if side.title else ""))


def _section(style: Styler, title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield style(title, bold=True)
        yield from (f"  {line}" for line in lines)


def _step_line(step: Step, style: Styler) -> str:
    mark, colour = (
        ("+", "green") if step.before is None else ("-", "red") if step.after is None else ("~", "yellow")
    )
    moved = " → ".join(plain(status) for status in (step.before, step.after) if status is not None)
    return style(f"{mark} {plain(step.content)} ({moved})", fg=colour)


def _setting_line(setting: ChangedSetting) -> str:
    return f"{plain(setting.path)}: {_brief(setting.before)} → {_brief(setting.after)}"


def _brief(value: Any) -> str:
    import json

    return cut(plain(json.dumps(value, ensure_ascii=False)), _DIFF_SHOWN)


def _unchanged(count: int, style: Styler) -> Iterator[str]:
    if count:
        yield style(f"  {several(count, 'message')} the same", dim=True)


def _prefixed(mark: str, said: Said | None, style: Styler, **colour: Any) -> Iterator[str]:
    for line in lines_of(said, lambda text, **_: text) if said else ():
        if line:
            yield style(f"{mark} {line}", **colour)


@declare(
    "diff",
    answer="comparing.Compared",
    show=show_compared,
    examples=(
        ("asnap diff latest", "what the newest snapshot changed"),
        ("asnap diff 01jd@3 01jd@7", "what changed from snapshot 3 to 7"),
        ("asnap diff 01jd 01jf --stat", "two branches, in numbers"),
        ("asnap diff 01jd 01jf --json | jq .files", "the files that only the second one touched"),
    ),
    exits=(4, 5, 7, 10),
)
@click.argument("first", metavar="A")
@click.argument("second", metavar="[B]", required=False)
@click.option("--stat", is_flag=True, help="Only numbers.")
async def diff_command(call: Call, *, first: str, second: str | None, stat: bool) -> Printed:
    """Show what differs from A to B: messages, tools, plan, settings, files touched, tokens.

    A and B may be sessions, or snapshots of one (01jd@3), and need not be related. A alone is compared with the
    snapshot before it.
    """
    from snapshot_plugin.operations.comparing import compare

    async with call.store() as store:
        return Printed(await compare(store, first, second), show_compared_in_numbers if stat else show_compared)
