"""``asnap show``: print one session: summary, timeline, transcript."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from snapshot_plugin.cli.about import fact_lines
from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.cli.transcript import lines_of
from snapshot_plugin.operations.references import find
from snapshot_plugin.operations.showing import Shown, SnapshotRow, history, show, shown
from snapshot_plugin.operations.text import ago, count, plain, size

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["command"]


def show_session(answer: Shown, out: Output) -> None:
    """Print a session."""
    if answer.history:
        out.table(_COLUMNS, [_cells(row, answer.as_of) for row in answer.history])
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


_COLUMNS = (
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


def _cells(row: SnapshotRow, now: datetime) -> tuple[str, ...]:
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
    answer=Shown,
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
async def command(
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
