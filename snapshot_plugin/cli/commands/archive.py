"""``asnap archive``: copy sessions to a bucket, and restore them on another machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.listed import ArchivedStore, archived_stores
from snapshot_plugin.operations.text import long_ago, plain, several

if TYPE_CHECKING:
    from snapshot_plugin.store.archive import Archive
    from snapshot_plugin.store.keyed import KeyedStore
    from snapshot_plugin.store.s3 import ObjectStore

__all__ = ["Archived", "ArchivedSession", "archive_now", "bucket_of", "command"]

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
async def command(
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
    from snapshot_plugin.cli.commands.import_ import take_in
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
