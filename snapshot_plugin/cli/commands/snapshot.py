"""``asnap snapshot``: save live sessions now, and report which were not saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import Printed
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output, markdown_table
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.session_rows import Holder, holder_of
from snapshot_plugin.operations.text import clock_time, plain, several

if TYPE_CHECKING:
    from snapshot_plugin.live.outcome import Outcome
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["SavedSessions", "command"]

_TITLES = ("session", "title", "status", "snapshot", "owner", "problem")


class SavedSession(Part):
    """The result for one session."""

    session_id: str
    title: str | None
    status: str
    """saved, failed, timeout, not_reachable, or not_live: then its newest snapshot is all there is."""
    snapshot: int | None
    problem: str | None
    owner: Holder | None


class SavedSessions(Document):
    """The result for each session that was to be saved."""

    kind: ClassVar[str] = "snapshot"
    rows: ClassVar[str] = "sessions"
    tag: str
    sessions: tuple[SavedSession, ...]
    saved: int
    as_of: datetime
    not_archived: tuple[str, ...] = ()
    """With an archive: what is not in it, each session with the reason."""

    @property
    def exit_code(self) -> int:
        """0 only if all were saved, and are in the archive if there is one; 3 if some were."""
        if self.saved == len(self.sessions):
            return PARTIAL if self.not_archived else 0
        return PARTIAL if self.saved else 1

    @property
    def summary(self) -> str:
        """The result in a sentence."""
        if not self.sessions:
            return "no session is live: there is nothing to save"
        saved = f"{self.saved} of {several(len(self.sessions), 'session')} saved"
        return f"{saved} as {plain(self.tag)}, {clock_time(self.as_of)}"


def show_saved(answer: SavedSessions, out: Output) -> None:
    """Print the result for each session that was to be saved."""
    columns = (
        Column("SESSION"),
        Column("TITLE", flexible=True, rank=2),
        Column("STATUS", style=lambda cell: {"fg": "green" if cell == "saved" else "red"}),
        Column("SNAPSHOT", right=True),
        Column("OWNER", flexible=True, rank=1),
        Column("PROBLEM", flexible=True),
    )
    out.table(columns, _cells(answer))
    out.note(answer.summary)
    for line in answer.not_archived:
        out.note(f"not in the archive: {plain(line)}")


def _cells(answer: SavedSessions) -> Iterator[tuple[str, ...]]:
    for each in answer.sessions:
        owner = f"process {each.owner.pid} on {plain(each.owner.host)}" if each.owner else ""
        number = str(each.snapshot) if each.snapshot is not None else ""
        status = each.status.replace("_", " ")
        yield each.session_id, plain(each.title or ""), status, number, owner, plain(each.problem or "")


def show_saved_as_markdown(answer: SavedSessions, out: Output) -> None:
    """Print the same as a Markdown table, for a change ticket."""
    for line in markdown_table(_TITLES, _cells(answer)) if answer.sessions else ():
        out.line(line)
    out.line(f"\n{answer.summary}" if answer.sessions else answer.summary)


@declare(
    "snapshot",
    answer=SavedSessions,
    show=show_saved,
    examples=(
        ("asnap snapshot --all --tag pre-deploy", "every live session, before a deploy"),
        ("asnap snapshot --all --wait 30s --format markdown", "with a table for the change ticket"),
        ("asnap snapshot 01jd --tag before-refactor", "one live session, under a tag"),
    ),
    exits=(3, 4, 7, 10),
)
@click.argument("refs", metavar="[REF]...", nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="Every live session.")
@click.option(
    "--tag", metavar="TAG", help="The tag of the snapshots.  [default: pre-deploy with --all, else manual]"
)
@click.option("--wait", metavar="TIME", default="30s", show_default=True, help="How long the owners have.")
@click.option(
    "--archive",
    metavar="URL",
    envvar="ASNAP_ARCHIVE",
    help="Then copy missing snapshots to the archive; see asnap archive.  [env: ASNAP_ARCHIVE]",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "markdown"]), default="text", help="Form of the table."
)
async def command(
    call: Call, *, refs: tuple[str, ...], everyone: bool, tag: str | None, wait: str, archive: str | None, form: str
) -> Printed:
    """Ask the owners of live sessions to save them now.

    Exits with 0 only if all are saved, so it can guard a deploy. Each session that is not saved is named, with its
    owner and the reason.
    """
    from snapshot_plugin.manager.config_values import seconds

    if everyone == bool(refs):
        raise click.UsageError("name sessions, or give --all")
    label = tag or ("pre-deploy" if everyone else "manual")
    async with call.live() as store:
        outcomes, metas = await _saved(store, refs, tag=label, within=seconds(wait))
        only = None if everyone else [each.session_id for each in outcomes]
        missing = await _archived(call, store, archive, only) if archive else ()
    done = SavedSessions(
        tag=label,
        sessions=tuple(_session(outcome, metas.get(outcome.session_id)) for outcome in outcomes),
        saved=sum(outcome.status == "saved" for outcome in outcomes),
        as_of=call.now,
        not_archived=missing,
    )
    return Printed(done, show_saved_as_markdown if form == "markdown" else show_saved)


async def _archived(call: Call, store: SnapshotStore, url: str, only: list[str] | None) -> tuple[str, ...]:
    """Copy sessions to the archive; return those that could not be copied."""
    from contextlib import aclosing

    from snapshot_plugin.cli.commands.archive import archive_now, bucket_of

    async with aclosing(bucket_of(call, url)) as bucket:
        done = await archive_now(call, store, bucket, only=only)
    return tuple(f"{each.session_id}: {each.problem}" for each in done if each.problem)


async def _saved(
    store: SnapshotStore, refs: tuple[str, ...], *, tag: str, within: float
) -> tuple[list[Outcome], Mapping[str, SnapshotMeta]]:
    """Save the named sessions, or all; return the results and the earlier listing."""
    import anyio.to_thread

    from snapshot_plugin.live.outcome import Outcome
    from snapshot_plugin.live.place import required_place
    from snapshot_plugin.manager.predeploy import ask_everyone
    from snapshot_plugin.model.ids import as_reference
    from snapshot_plugin.operations.references import resolve

    metas = await store.list()
    # A live session may have no snapshot yet.
    owners = await anyio.to_thread.run_sync(required_place(store).owners) if refs else {}
    live_ones = {as_reference(name): name for name in owners}
    wanted = list(dict.fromkeys(live_ones.get(ref) or resolve(ref, metas).session_id for ref in refs))
    outcomes = await ask_everyone(store, tag=tag, within=within, only=wanted if refs else None)
    live = {outcome.session_id for outcome in outcomes}
    idle = [Outcome(session_id=name, status="not_live") for name in wanted if name not in live]
    return [*outcomes, *idle], {meta.session_id: meta for meta in metas}


def _session(outcome: Outcome, meta: SnapshotMeta | None) -> SavedSession:
    idle = (
        f"no process runs it; its newest snapshot is {meta.seq}" if outcome.status == "not_live" and meta else None
    )
    return SavedSession.from_fields(
        outcome,
        title=(meta.title or meta.opening) if meta else None,
        snapshot=outcome.seq,
        problem=outcome.problem or idle,
        owner=holder_of(outcome.owner) if outcome.owner else None,
    )
