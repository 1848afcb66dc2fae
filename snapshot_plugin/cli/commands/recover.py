"""``asnap recover``: turn what killed processes left behind into snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import Printed
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output, markdown_table
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.text import long_ago, plain

if TYPE_CHECKING:
    from snapshot_plugin.live.recovery import Recovered

__all__ = ["Recovery", "command"]


class RecoveredSession(Part):
    """One session whose process was killed, and the result."""

    session_id: str
    title: str | None
    records: int
    """How much was found beyond its newest snapshot."""
    snapshot: int | None
    """The snapshot that was made of it; null if nothing was missing, or nothing could be made."""
    problem: str | None
    pid: int | None
    """The process that died, where it left its name."""
    since: datetime | None

    @property
    def outcome(self) -> str:
        """The result in words."""
        if self.problem:
            return f"not all recovered: {self.problem}"
        return f"snapshot {self.snapshot}" if self.snapshot else "nothing was missing"


class Recovery(Document):
    """What was recovered."""

    kind: ClassVar[str] = "recover"
    rows: ClassVar[str] = "sessions"
    sessions: tuple[RecoveredSession, ...]
    as_of: datetime

    @property
    def exit_code(self) -> int:
        """3 if something could not be recovered."""
        return PARTIAL if any(session.problem for session in self.sessions) else 0


def show_recovery(answer: Recovery, out: Output) -> None:
    """Print what was recovered."""
    if not answer.sessions:
        out.note("nothing to recover: no killed process left anything behind")
        return
    columns = (
        Column("SESSION"),
        Column("TITLE", flexible=True, rank=1),
        Column("RECORDS", right=True),
        Column("OUTCOME", flexible=True),
        Column("OWNER", flexible=True, rank=2),
    )
    out.table(columns, _cells(answer))


def _cells(answer: Recovery) -> Iterator[tuple[str, ...]]:
    for session in answer.sessions:
        owner = f"process {session.pid}, begun {long_ago(session.since, answer.as_of)}" if session.since else ""
        outcome = plain(session.outcome)
        yield session.session_id, plain(session.title or ""), str(session.records), outcome, owner


def show_recovery_as_markdown(answer: Recovery, out: Output) -> None:
    """Print the same as a Markdown table."""
    for line in markdown_table(("session", "title", "records", "outcome", "owner"), _cells(answer)):
        out.line(line)


@declare(
    "recover",
    answer=Recovery,
    show=show_recovery,
    examples=(
        ("asnap recover", "a line for each session that was cut off"),
        ("asnap recover --format markdown", "the same as a table for a ticket"),
        ("asnap recover -q && asnap resume", "after a crash"),
    ),
    exits=(3, 7, 10),
)
@click.option(
    "--format", "form", type=click.Choice(["text", "markdown"]), default="text", help="Form of the table."
)
async def command(call: Call, *, form: str) -> Printed:
    """Save the records of killed processes as snapshots.

    Live sessions are left alone, and running it twice does no harm. asnap run and asnap resume do the same
    automatically.
    """
    from snapshot_plugin.live.recovery import recover

    async with call.live() as store:
        found = await recover(store, now=call.now)
        titles = {meta.session_id: meta.title for meta in await store.list()} if found else {}
    sessions = tuple(_session(each, titles.get(each.session_id)) for each in found)
    show = show_recovery_as_markdown if form == "markdown" else show_recovery
    return Printed(Recovery(sessions=sessions, as_of=call.now), show)


def _session(found: Recovered, title: str | None) -> RecoveredSession:
    owner = found.previous_owner
    return RecoveredSession.from_fields(
        found,
        title=title,
        snapshot=found.ref.seq if found.ref else None,
        pid=owner.pid if owner else None,
        since=owner.since if owner else None,
    )
