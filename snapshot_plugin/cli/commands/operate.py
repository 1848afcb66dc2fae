"""``snapshot``, ``recover``, ``archive`` and ``doctor``: for those who run agents for others."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import Printed
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output, markdown_table
from snapshot_plugin.errors import InvalidInput, SnapshotError, StoreUnavailable
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL, hint_of, next_command
from snapshot_plugin.operations.sessions import ArchivedStore, Holder, archived_stores, holder_of
from snapshot_plugin.operations.text import clock_time, long_ago, plain, several, size

if TYPE_CHECKING:
    from snapshot_plugin.live.outcome import Outcome
    from snapshot_plugin.live.recovery import Recovered
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.operations.sessions import SessionRow
    from snapshot_plugin.store.archive import Archive
    from snapshot_plugin.store.base import Finding, SnapshotStore
    from snapshot_plugin.store.keyed import KeyedStore
    from snapshot_plugin.store.s3 import ObjectStore

__all__ = [
    "AGENTS",
    "Archived",
    "ArchivedSession",
    "Diagnosis",
    "Observation",
    "Recovery",
    "SavedSessions",
    "archive_command",
    "archive_now",
    "bucket_of",
    "doctor_command",
    "installed_agents",
    "look_at_agents",
    "look_at_leftovers",
    "look_at_machine",
    "look_at_place",
    "look_at_quarantine",
    "look_at_sessions",
    "look_at_unrecorded",
    "recover_command",
    "snapshot_command",
]

# asnap snapshot -----------------------------------------------------------------------------------------------


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
    out.table(columns, _snapshot_cells(answer))
    out.note(answer.summary)
    for line in answer.not_archived:
        out.note(f"not in the archive: {plain(line)}")


def _snapshot_cells(answer: SavedSessions) -> Iterator[tuple[str, ...]]:
    for each in answer.sessions:
        owner = f"process {each.owner.pid} on {plain(each.owner.host)}" if each.owner else ""
        number = str(each.snapshot) if each.snapshot is not None else ""
        status = each.status.replace("_", " ")
        yield each.session_id, plain(each.title or ""), status, number, owner, plain(each.problem or "")


def show_saved_as_markdown(answer: SavedSessions, out: Output) -> None:
    """Print the same as a Markdown table, for a change ticket."""
    for line in markdown_table(_TITLES, _snapshot_cells(answer)) if answer.sessions else ():
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
async def snapshot_command(
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
        sessions=tuple(_snapshot_session(outcome, metas.get(outcome.session_id)) for outcome in outcomes),
        saved=sum(outcome.status == "saved" for outcome in outcomes),
        as_of=call.now,
        not_archived=missing,
    )
    return Printed(done, show_saved_as_markdown if form == "markdown" else show_saved)


async def _archived(call: Call, store: SnapshotStore, url: str, only: list[str] | None) -> tuple[str, ...]:
    """Copy sessions to the archive; return those that could not be copied."""
    from contextlib import aclosing

    from snapshot_plugin.cli.commands.operate import archive_now, bucket_of

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


def _snapshot_session(outcome: Outcome, meta: SnapshotMeta | None) -> SavedSession:
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


# asnap recover ------------------------------------------------------------------------------------------------


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
    out.table(columns, _recover_cells(answer))


def _recover_cells(answer: Recovery) -> Iterator[tuple[str, ...]]:
    for session in answer.sessions:
        owner = f"process {session.pid}, begun {long_ago(session.since, answer.as_of)}" if session.since else ""
        outcome = plain(session.outcome)
        yield session.session_id, plain(session.title or ""), str(session.records), outcome, owner


def show_recovery_as_markdown(answer: Recovery, out: Output) -> None:
    """Print the same as a Markdown table."""
    for line in markdown_table(("session", "title", "records", "outcome", "owner"), _recover_cells(answer)):
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
async def recover_command(call: Call, *, form: str) -> Printed:
    """Save the records of killed processes as snapshots.

    Live sessions are left alone, and running it twice does no harm. asnap run and asnap resume do the same
    automatically.
    """
    from snapshot_plugin.live.recovery import recover

    async with call.live() as store:
        found = await recover(store, now=call.now)
        titles = {meta.session_id: meta.title for meta in await store.list()} if found else {}
    sessions = tuple(_recover_session(each, titles.get(each.session_id)) for each in found)
    show = show_recovery_as_markdown if form == "markdown" else show_recovery
    return Printed(Recovery(sessions=sessions, as_of=call.now), show)


def _recover_session(found: Recovered, title: str | None) -> RecoveredSession:
    owner = found.previous_owner
    return RecoveredSession.from_fields(
        found,
        title=title,
        snapshot=found.ref.seq if found.ref else None,
        pid=owner.pid if owner else None,
        since=owner.since if owner else None,
    )


# asnap archive ------------------------------------------------------------------------------------------------


_GOOD = ("copied", "current", "imported", "updated", "already_there")


class ArchivedSession(Part):
    """The result for one session."""

    session_id: str
    status: str
    """To the archive: copied, current (it was there), diverged (the archive went on elsewhere), failed.
    From it: imported, updated, renamed, already_there."""
    snapshot: int | None
    problem: str | None


class Archived(Document):
    """What was copied, or is in the archive."""

    kind: ClassVar[str] = "archive"
    rows: ClassVar[str] = "sessions"
    archive: str
    sessions: tuple[ArchivedSession, ...]
    stores: tuple[ArchivedStore, ...]
    as_of: datetime

    @property
    def exit_code(self) -> int:
        """0 only if all is in the archive, or came from it; 3 if some is."""
        bad = sum(each.status not in _GOOD for each in self.sessions)
        return 0 if not bad else PARTIAL if bad < len(self.sessions) else 1


def show_archive(answer: Archived, out: Output) -> None:
    """Print what was copied, or is in the archive."""
    told = [each for each in answer.sessions if each.status != "current"]
    columns = (
        Column("SESSION"),
        Column("STATUS"),
        Column("SNAPSHOT", right=True),
        Column("PROBLEM", flexible=True),
    )
    cells = [(each.session_id, each.status, str(each.snapshot or ""), plain(each.problem or "")) for each in told]
    out.table(columns, cells)
    for each in answer.stores:
        copied = long_ago(each.as_of, answer.as_of)
        out.note(f"{several(each.sessions, 'session')} of {plain(each.host)}, copied {copied}")
        for line in each.behind:
            out.note(f"  not in the archive: {plain(line)}")
    current = len(answer.sessions) - len(told)
    if current:
        out.note(f"{current} sessions were up to date")


@declare(
    "archive",
    answer=Archived,
    show=show_archive,
    examples=(
        ("asnap archive s3://my-bucket/agents", "copy what the archive does not have yet"),
        ("asnap archive s3://my-bucket/agents --watch", "the same whenever a turn is saved, until Ctrl-C"),
        ("asnap archive s3://my-bucket/agents --status", "how old the copy is, from any machine"),
        ("asnap archive s3://my-bucket/agents --restore 01jd", "bring a session here, to resume it"),
    ),
    exits=(3, 4, 7, 10),
)
@click.argument("url", metavar="URL")
@click.argument("refs", metavar="[REF]...", nargs=-1)
@click.option("--watch", is_flag=True, help="Keep running, and copy each session when it is saved.")
@click.option("--every", metavar="TIME", default="2s", show_default=True, help="How often --watch looks.")
@click.option("--status", is_flag=True, help="Copy nothing; show the contents and age of the archive.")
@click.option("--restore", is_flag=True, help="Bring sessions from the archive into this store.")
async def archive_command(
    call: Call, *, url: str, refs: tuple[str, ...], watch: bool, every: str, status: bool, restore: bool
) -> Archived:
    """Keep a copy of this store's sessions in a bucket: s3://, gs:// or az://.

    Frames are copied byte for byte, encrypted ones with this store's keys, and read back. The archive is never
    overwritten: a session continued there is reported as diverged. Snapshots forgotten here stay there.
    """
    if watch + status + restore > 1:
        raise click.UsageError("give one of --watch, --status and --restore")
    if status:
        async with bucket_of(call, url, create=False) as bucket:
            return await _answer(call, bucket, url, ())
    if restore:
        return await _restored(call, url, refs)
    # Not opened before the archive is made: it gets the id of the store that it copies.
    async with call.store() as store, aclosing(bucket_of(call, url)) as bucket:
        if watch:
            await _watch(call, _keyed(store), bucket, every)
        from snapshot_plugin.operations.references import find

        only = [(await find(store, ref)).session_id for ref in refs] or None
        return await _answer(call, bucket, url, await archive_now(call, store, bucket, only=only))


async def archive_now(
    call: Call, store: object, bucket: ObjectStore, *, only: Sequence[str] | None = None
) -> tuple[ArchivedSession, ...]:
    """Copy what *bucket* does not have yet; return the result for each session."""
    import anyio.to_thread

    from snapshot_plugin.store.archive import Archive

    archive = Archive(_keyed(store), bucket)
    await anyio.to_thread.run_sync(archive.prepare)
    done = await anyio.to_thread.run_sync(lambda: archive.copy_all(call.now, only=only))
    return tuple(
        ArchivedSession.from_fields(each, snapshot=each.seq or None, problem=each.problem or None) for each in done
    )


async def _watch(call: Call, store: KeyedStore, bucket: ObjectStore, every: str) -> None:
    """Copy what changes, until interrupted. An unreachable bucket is retried."""
    import anyio

    from snapshot_plugin.manager.config_values import seconds
    from snapshot_plugin.store.archive import Archive

    archive = Archive(store, bucket)
    await anyio.to_thread.run_sync(archive.prepare)
    while True:
        await _once(call, archive)
        await anyio.sleep(seconds(every))


async def _once(call: Call, archive: Archive) -> None:
    from datetime import UTC

    import anyio.to_thread

    from snapshot_plugin.errors import SnapshotError

    try:
        for each in await anyio.to_thread.run_sync(lambda: archive.copy_all(datetime.now(UTC))):
            if each.status != "current":
                call.out.note(f"{each.session_id}: {each.problem or f'snapshot {each.seq} is in the archive'}")
    except SnapshotError as error:
        if not error.retryable:
            raise
        call.out.note(f"{error.message}; trying again")


async def _restored(call: Call, url: str, refs: Sequence[str]) -> Archived:
    from snapshot_plugin.cli.commands.share import take_in
    from snapshot_plugin.exchange.carrying import collect
    from snapshot_plugin.model.ids import check_session_id, owner_of
    from snapshot_plugin.operations.references import find

    rows = []
    async with bucket_of(call, url, create=False) as bucket, call.opened(create=True) as store:
        known = [meta.session_id for meta in await bucket.list()] if not refs else []
        wanted = [(await find(bucket, ref)).session_id for ref in refs]
        wanted += [each for each in known if owner_of(each) not in known]  # a session brings its companions
        for session_id in wanted:
            # As they are: ADK, for example, keeps parts without a session that they belong to.
            (arrival,) = await take_in(call, store, await collect(bucket, session_id), id_for=check_session_id)
            problem = f"another session {session_id} is here" if arrival.outcome == "renamed" else None
            rows.append(
                ArchivedSession.from_fields(
                    arrival, status=arrival.outcome, snapshot=arrival.snapshots, problem=problem
                )
            )
        return await _answer(call, bucket, url, tuple(rows))


async def _answer(call: Call, bucket: ObjectStore, url: str, sessions: tuple[ArchivedSession, ...]) -> Archived:
    import anyio.to_thread

    stores = await anyio.to_thread.run_sync(archived_stores, bucket, call.now)
    return Archived(archive=url, sessions=sessions, stores=stores, as_of=call.now)


def bucket_of(call: Call, url: str, *, create: bool = True) -> ObjectStore:
    """Open the archive at *url*; `InvalidInput` if it is not a bucket."""
    from snapshot_plugin.store import open_store
    from snapshot_plugin.store.s3 import ObjectStore

    archive = open_store(url, key=call.key(), create=create, background=False, environ=call.environ)
    if not isinstance(archive, ObjectStore):
        raise InvalidInput(
            f"{url} is not a bucket", hint="an archive is in a bucket: s3://bucket/prefix, gs:// or az://"
        )
    return archive


def _keyed(store: object) -> KeyedStore:
    from snapshot_plugin.store.keyed import KeyedStore
    from snapshot_plugin.store.s3 import ObjectStore

    if not isinstance(store, KeyedStore) or isinstance(store, ObjectStore):
        raise InvalidInput("what is archived is a store on disk or in PostgreSQL", hint="name it with --store")
    return store


# asnap doctor -------------------------------------------------------------------------------------------------


Level = Literal["ok", "hint", "warning", "problem"]

AGENTS = {
    "opencode": "opencode acp",
    "codex-acp": "codex-acp",
    "claude-code-acp": "claude-code-acp",
    "claude-agent-acp": "claude-agent-acp",
    "gemini": "gemini --experimental-acp",
    "qwen": "qwen --acp",
    "goose": "goose acp",
    "kimi": "kimi acp",
    "deepagents-acp": "deepagents-acp",
    "hermes": "hermes acp",
}
"""ACP agents people have, and the command that starts each as one."""

_LITTLE_SPACE = 512 * 1024 * 1024
_CLOCK_MAY_DIFFER = timedelta(minutes=5)
_LARGE_TRASH = 256 * 1024 * 1024
_LARGEST_PROJECT_FILE = 1 << 18
_RECENTLY = timedelta(days=30)


class Observation(Part):
    """The result of one check."""

    area: str
    level: Level
    what: str
    run: str | None = None


def _foreign(path: Path) -> Iterator[Observation]:
    """Return the parts of the store that belong to another user, who could read or replace them."""
    from snapshot_plugin.system.files import owner_name

    for part in (path, path / "sessions", path / "trash", path / "keys"):
        try:
            owner = part.lstat().st_uid
        except OSError:
            continue
        if owner != os.getuid():
            what = f"{part} belongs to another user ({owner_name(owner)}), who can read and replace what is in it"
            yield Observation(area="store", level="problem", what=what, run=f"ls -ld {part}")


def look_at_place(path: Path) -> Iterator[Observation]:
    """Check the store's directory: does it exist, is it private and writable, is there room?"""
    from snapshot_plugin.store.marker import is_store

    if not is_store(path):
        yield Observation(
            area="store", level="hint", what=f"there is no store at {path} yet", run="asnap run -- AGENT"
        )
        return
    yield from _foreign(path)
    mode = path.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        what = f"others can look into {path} (mode {stat.S_IMODE(mode):o})"
        yield Observation(area="store", level="warning", what=what, run=f"chmod 700 {path}")
    if not os.access(path, os.W_OK):
        yield Observation(area="store", level="problem", what=f"{path} cannot be written to", run=f"ls -ld {path}")
    free = shutil.disk_usage(path).free
    level: Level = "warning" if free < _LITTLE_SPACE else "ok"
    remedy = None if level == "ok" else "asnap forget --help"
    yield Observation(area="store", level=level, what=f"{path}: {size(free)} free", run=remedy)


_UNREADABLE = {"damaged": "damaged", "encrypted": "locked", "too_new": "too new"}


def look_at_sessions(call: Call, store: SnapshotStore, rows: Sequence[SessionRow]) -> Iterator[Observation]:
    """Check the sessions of *store*: damage, dead owners, clocks."""
    unreadable = {state: [row for row in rows if row.state == state] for state in _UNREADABLE}
    for state, found in unreadable.items():
        if found:
            named = ", ".join(row.session_id for row in found[:3])
            what = f"{several(len(found), f'{_UNREADABLE[state]} session')}: {named}"
            yield Observation(area="sessions", level="problem", what=what, run=found[0].next)
    ended = [row for row in rows if row.ended_unexpectedly]
    if ended:
        when = f", the last one {long_ago(max(row.last_sign or row.saved_at for row in ended), call.now)}"
        what = f"{several(len(ended), 'session')} ended unexpectedly{when}"
        yield Observation(area="sessions", level="warning", what=what, run="asnap recover")
    ahead = [row for row in rows if row.saved_at > call.now + _CLOCK_MAY_DIFFER]
    if ahead:
        what = (
            f"{several(len(ahead), 'session')} saved in the future: this clock is behind, or another one was ahead"
        )
        yield Observation(area="clock", level="warning", what=what, run="date")
    live = sum(row.live is not None for row in rows)
    if not any(unreadable.values()):
        usual = "asnap resume" if store.capabilities.live else "asnap list"
        what = f"{several(len(rows), 'session')}, {live} live"
        yield Observation(area="sessions", level="ok", what=what, run=usual if rows else None)


def look_at_quarantine(aside: Sequence[Finding]) -> Iterator[Observation]:
    """List files in quarantine, which are kept until a person removes them."""
    sessions = sorted({each.session_id for each in aside})
    if sessions:
        what = f"damaged files of {several(len(sessions), 'session')} in quarantine: {', '.join(sessions[:3])}"
        yield Observation(area="quarantine", level="hint", what=what, run=f"asnap check --salvage {sessions[0]}")


def look_at_leftovers(path: Path, trashed: int) -> Iterator[Observation]:
    """List temporary files of killed processes, and the size of the trash."""
    found = sum(1 for _ in path.glob("sessions/*/*.tmp")) + sum(1 for _ in path.glob("*.tmp"))
    if found:
        yield Observation(
            area="leftovers", level="hint", what=f"{several(found, 'temporary file')} of killed processes; harmless"
        )
    if trashed > _LARGE_TRASH:
        yield Observation(area="trash", level="hint", what=f"{size(trashed)} in the trash", run="asnap purge")


def installed_agents(call: Call) -> list[str]:
    """The commands of the known ACP agents that are on the PATH."""
    path = call.environ.get("PATH")
    return [command for program, command in AGENTS.items() if shutil.which(program, path=path)]


def look_at_agents(call: Call) -> Iterator[Observation]:
    """List the installed ACP agents."""
    if found := installed_agents(call):
        yield Observation(
            area="agents", level="ok", what=f"found: {', '.join(found)}", run=f"asnap run -- {found[0]}"
        )
    else:
        yield Observation(area="agents", level="hint", what="no known ACP agent is on the PATH", run="asnap demo")


def look_at_unrecorded(call: Call) -> Iterator[Observation]:
    """List the agents whose sessions ``asnap run`` could not record lately."""
    from snapshot_plugin.cli.remembered import UNRECORDED, recall

    for command, noted in recall(call, UNRECORDED).items():
        try:
            why, at = str(noted["why"]), datetime.fromisoformat(noted["at"])
            when = long_ago(at, call.now) if call.now - at < _RECENTLY else None
        except (KeyError, TypeError, ValueError):  # written by someone else
            continue
        if when is not None:
            what = f"sessions of {command} were not recorded ({when}): {why}"
            yield Observation(area="agents", level="warning", what=what)


def _extras() -> list[str]:
    """Return the extras whose packages are all installed."""
    import re
    from importlib.metadata import PackageNotFoundError, requires, version

    found: dict[str, bool] = {}
    try:
        needed = requires("snapshot-plugin") or []
    except PackageNotFoundError:  # pragma: no cover — as below
        return []
    for line in needed:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        package = re.match(r"[\w.-]+", line)
        if extra and package and extra[1] != "test":
            try:
                version(package[0])
                found.setdefault(extra[1], True)
            except PackageNotFoundError:
                found[extra[1]] = False
    return sorted(name for name, is_there in found.items() if is_there)


def look_at_machine(call: Call) -> Iterator[Observation]:
    """Report versions, extras and settings."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        ours = version("snapshot-plugin")
    except PackageNotFoundError:  # pragma: no cover — run from a source tree that was never installed
        ours = "not installed"
    python = ".".join(map(str, sys.version_info[:3]))
    what = f"snapshot-plugin {ours}, Python {python}, extras: {', '.join(_extras()) or 'none'}"
    yield Observation(area="version", level="ok", what=what)
    for notice in call.config.notices:
        yield Observation(area="settings", level="warning", what=notice, run="asnap config show --origin")
    for file in _project_settings(Path.cwd()):
        what = f"{file} is ignored: settings are not read from a project"
        yield Observation(area="settings", level="hint", what=what, run="asnap paths")


def _project_settings(directory: Path) -> Iterator[Path]:
    """The files with settings for asnap at or above *directory*, up to the repository's root. They are not used."""
    for place in (directory, *directory.parents):
        if os.path.lexists(place / ".asnap.toml"):
            yield place / ".asnap.toml"
        if _has_our_table(place / "pyproject.toml"):
            yield place / "pyproject.toml"
        if (place / ".git").exists():
            return


def _has_our_table(path: Path) -> bool:
    """Whether a ``pyproject.toml`` has a table for asnap. It may be a stranger's, so only a plain file is read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and b"[tool.asnap" in os.read(fd, _LARGEST_PROJECT_FILE)
    finally:
        os.close(fd)


_SIGN = {"ok": ("✓", "green"), "hint": ("·", "blue"), "warning": ("!", "yellow"), "problem": ("✗", "red")}
_WORST_FIRST = ("problem", "warning", "hint", "ok")


class Diagnosis(Document):
    """Everything that was checked, and the most useful next command."""

    kind: ClassVar[str] = "doctor"
    rows: ClassVar[str] = "findings"
    findings: tuple[Observation, ...]
    next: str

    @property
    def exit_code(self) -> int:
        """1 if there is a problem; warnings are not failures."""
        return 1 if any(finding.level == "problem" for finding in self.findings) else 0


def show_diagnosis(answer: Diagnosis, out: Output) -> None:
    """Print everything that was checked, and the most useful next command."""
    for finding in answer.findings:
        sign, colour = _SIGN[finding.level]
        out.line(f"{out.style(sign, fg=colour)} {finding.area}: {plain(finding.what)}")
    out.line(f"\nnext: {answer.next}")


@declare(
    "doctor",
    answer=Diagnosis,
    show=show_diagnosis,
    examples=(
        ("asnap doctor", "store, keys, agents, space, clock, leftovers; ends with what to do"),
        ("asnap doctor --json", "the same for a monitor; exit code 1 on a problem"),
        ("asnap doctor --store /backup/sessions", "look at a copy"),
        ("asnap doctor --store s3://my-bucket/agents", "look at a bucket or a database"),
    ),
    exits=(),
)
async def doctor_command(call: Call) -> Diagnosis:
    """Check this installation for everything that could be wrong.

    Changes nothing; in a bucket, an empty object is made and removed to see whether the service can keep writers
    apart. Ends with the one command that helps most.
    """
    try:
        findings = [
            *look_at_machine(call),
            *await _look_at_store(call),
            *look_at_agents(call),
            *look_at_unrecorded(call),
        ]
    except InvalidInput as error:  # without settings nothing else can be checked
        findings = [_problem("settings", error, run="asnap help environment")]
    return Diagnosis(findings=tuple(findings), next=_next(call, findings))


async def _look_at_store(call: Call) -> list[Observation]:
    from snapshot_plugin.store import is_url
    from snapshot_plugin.store.marker import is_store
    from snapshot_plugin.system.files import disk_errors

    where = call.config.storage_path
    if is_url(where):
        return await _inside(call)
    place = Path(where)
    try:
        with disk_errors("reading the store"):
            return [*look_at_place(place), *(await _inside(call, place) if is_store(place) else ())]
    except StoreUnavailable as error:
        return [_problem("store", error, run=next_command(error))]


async def _inside(call: Call, place: Path | None = None) -> list[Observation]:
    """Check what a store holds: in the directory *place*, or in a bucket or database, which may be unreachable."""
    import anyio.to_thread

    from snapshot_plugin.operations.sessions import every_row

    findings: list[Observation] = []
    try:
        async with call.opened() as store:
            examine: Any = getattr(store, "examine", None)
            told = await anyio.to_thread.run_sync(examine) if examine else []
            if place is None and not examine:
                told = [("ok", call.config.storage_path)]
            findings += [Observation(area="store", level=level, what=what) for level, what in told]
            findings += look_at_sessions(call, store, await every_row(store, await store.list()))
            findings += look_at_quarantine(await store.quarantined())
            if place is not None:
                findings += look_at_leftovers(place, sum(each.size_bytes for each in await store.trash()))
    except SnapshotError as error:
        area = "keys" if error.code in ("key_missing", "wrong_key") else "store"
        findings.append(_problem(area, error, run=next_command(error)))
    return findings


def _problem(area: str, error: SnapshotError, *, run: str) -> Observation:
    return Observation(area=area, level="problem", what=f"{error.message}: {hint_of(error)}", run=run)


def _next(call: Call, findings: list[Observation]) -> str:
    """The remedy of the worst finding; if nothing is wrong, the usual next command."""
    for level in _WORST_FIRST[:2]:
        for finding in findings:
            if finding.level == level and finding.run:
                return call.out.run(finding.run) if finding.run.startswith("asnap ") else finding.run
    usual = {finding.area: finding.run for finding in findings if finding.run}
    if call.place and "sessions" not in {finding.area for finding in findings}:
        return "asnap paths"  # the place was named, and there is no store: it may be mistyped
    return call.out.run(usual["sessions"]) if "sessions" in usual else usual.get("agents", "asnap demo")
