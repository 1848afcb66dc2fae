"""``asnap show``: one session, its summary, its timeline, its transcript."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

import click

from snapshot_plugin.cli.about import About, about, fact_lines
from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.document import Document, Part
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.cli.refs import Target, find
from snapshot_plugin.cli.sessions import SessionRow, rows_of
from snapshot_plugin.cli.text import ago, count, plain, size
from snapshot_plugin.cli.transcript import Said, lines_of, said_of
from snapshot_plugin.errors import InvalidInput

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["Shown", "SnapshotRow", "command"]


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

    def show(self, out: Output) -> None:
        """See `Document`."""
        if self.history:
            out.table(_COLUMNS, [_cells(row, self.as_of) for row in self.history])
            return
        out.pages(itertools.chain(self._summary(out), self._transcript(out)))

    def _summary(self, out: Output) -> Iterator[str]:
        yield out.style(plain(self.session.title or "") or "(untitled)", bold=True)
        if not self.about:
            yield self.session.session_id
        else:
            yield from fact_lines(self.session, self.about, self.as_of)
        if self.snapshot != self.session.seq:
            yield f"this is snapshot {self.snapshot}; the newest is {self.session.seq}"
        yield ""

    def _transcript(self, out: Output) -> Iterator[str]:
        for said in self.messages:
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
    section="Find",
    answer=Shown,
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
@click.option("--history", is_flag=True, help="The timeline of snapshots in place of the conversation.")
@click.option("--tools", is_flag=True, help="What tools were given and what they gave back.")
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
    history: bool,
    tools: bool,
    message: int | None,
    first: int | None,
    summary: bool,
    raw: bool,
) -> Shown | None:
    """Show a session: what is to know about it, then the conversation.

    On a terminal, more than a screenful goes through $PAGER. Tools are folded to a line each. REF: an id or its
    beginning, a name, latest, latest~2, tag:x; with @N for one of its snapshots; - reads it from stdin.
    """
    if ref == "-":
        ref = sys.stdin.readline().strip()
    async with call.store() as store:
        target = await find(store, ref)
        (row,) = await rows_of(store, [target.meta])
        if history:
            past = [_snapshot_row(meta) for meta in await store.history(target.session_id)]
            return Shown(session=row, snapshot=past[0].seq, history=tuple(past), as_of=call.now)
        stored = await store.read(target.session_id, at=target.seq)
    if raw:
        _print_raw(call, stored.snapshot)
        return None
    messages = () if summary else _messages(stored, target, tools=tools, message=message, first=first)
    return Shown(
        session=row,
        about=about(stored) if message is None and first is None else None,
        snapshot=stored.ref.seq,
        messages=messages,
        as_of=call.now,
    )


def _messages(
    stored: StoredSnapshot, target: Target, *, tools: bool, message: int | None, first: int | None
) -> tuple[Said, ...]:
    number, total = message or first or 1, len(stored.snapshot.messages)
    if number > max(1, total):
        raise InvalidInput(
            f"session {target.session_id} has no message {number}: it has {total}", session_id=target.session_id
        )
    return tuple(said_of(stored.snapshot, tools=tools, first=number, last=message))


def _snapshot_row(meta: SnapshotMeta) -> SnapshotRow:
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


def _print_raw(call: Call, snapshot: SessionSnapshot) -> None:
    import json

    # Escaped to ASCII on a terminal: the snapshot holds what strangers wrote, byte for byte.
    text = json.dumps(snapshot.raw(), ensure_ascii=call.out.is_terminal, indent=2 if call.out.is_terminal else None)
    call.out.raw(text.encode("utf-8", "surrogatepass") + b"\n")
