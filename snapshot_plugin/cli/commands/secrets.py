"""``asnap secrets``: find secrets in sessions, and remove them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.command import yes_option
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.cli.progress import progress
from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.operations import references as refs
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.searching import forget_index
from snapshot_plugin.operations.text import plain, several

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.operations.secrets import SessionSecrets
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Secrets", "command"]


class SecretPlace(Part):
    """A place in the newest snapshot that holds secrets of a kind."""

    secret: str
    path: str
    count: int


class LeakySession(Part):
    """A session that holds secrets, or could not be searched."""

    session_id: str
    title: str | None
    secrets: dict[str, int]
    """How many of each kind. Never what they are."""
    places: tuple[SecretPlace, ...] = ()
    snapshots: tuple[int, ...] = ()
    """Every snapshot that contains a secret."""
    not_searched: tuple[str, ...] = ()
    """Files in quarantine, which were not searched."""
    trash: str | None = None
    """Its id in the trash, if it is there; asnap purge removes it permanently."""
    fixed: bool = False
    snapshot: int | None = None
    """The newest snapshot after the fix."""
    dropped: tuple[int, ...] = ()
    code: str | None = None
    problem: str | None = None


class Secrets(Document):
    """What was found, and what was removed."""

    kind: ClassVar[str] = "secrets"
    rows: ClassVar[str] = "sessions"
    sessions: tuple[LeakySession, ...]
    searched: int
    operation: str | None = None
    """The id of the fix for `asnap undo`."""
    operations: int = 0
    """How many operations that undo remembers hold a secret in a name, tag or note; with --fix, held."""
    fix: bool = False
    """Whether secrets were to be removed."""

    @property
    def exit_code(self) -> int:
        """1 if there are secrets, 3 if some sessions could not be searched or fixed."""
        if any(session.problem for session in self.sessions):
            return PARTIAL
        left = self.operations and not self.fix
        return 1 if left or any(session.secrets and not session.fixed for session in self.sessions) else 0


def show_secrets(answer: Secrets, out: Output) -> None:
    """Print what was found, and what was removed."""
    columns = (
        Column("SESSION"), Column("TITLE", flexible=True, rank=1), Column("SECRET"),
        Column("COUNT", right=True), Column("STATE"), Column("WHERE", flexible=True),
    )  # fmt: skip
    out.table(columns, [row for session in answer.sessions for row in _rows(session)])
    out.note(_end(answer))
    for session in answer.sessions:
        if session.not_searched:
            out.note(f"  not searched in {session.session_id}: {plain(', '.join(session.not_searched))}")
    if answer.operation:
        purge = out.run("asnap purge")
        out.note(f"  the snapshots with secrets are in the trash, for asnap undo; to remove them for good: {purge}")
        out.note("  copies that were shared, and the agent's own files, are unchanged: replace these secrets")
    if answer.operations:
        what = f"{several(answer.operations, 'operation')} for asnap undo"
        out.note(f"  removed from {what}" if answer.fix else f"  secrets in names, tags or notes of {what}")
    if not answer.operation and any(session.trash for session in answer.sessions):
        out.note(f"  to remove what is in the trash permanently: {out.run('asnap purge')}")
    held = any(session.secrets and not session.trash for session in answer.sessions)
    if answer.exit_code == 1 and (held or answer.operations):
        out.note(f"  to remove them: {out.run('asnap secrets scan --all --fix')}")


def _end(answer: Secrets) -> str:
    found = [session for session in answer.sessions if session.secrets]
    if not found:
        return f"no secrets in {several(answer.searched, 'session')}"
    fixed = sum(session.fixed for session in found)
    taken = f", removed from {fixed}" if fixed else ""
    return f"secrets in {len(found)} of {several(answer.searched, 'session')}{taken}"


def _rows(session: LeakySession) -> Iterator[tuple[str, ...]]:
    state = "fixed" if session.fixed else "in the trash" if session.trash else ""
    for kind, count in session.secrets.items():
        paths = [place.path for place in session.places if place.secret == kind]
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        where = paths[0] + more if paths else f"only in older snapshots ({len(session.snapshots)})"
        yield session.session_id, plain(session.title or ""), plain(kind), str(count), state, plain(where)
    if session.problem:
        yield session.session_id, plain(session.title or ""), "?", "", "skipped", plain(session.problem)


@click.group("secrets")
def command() -> None:
    """Find secrets in sessions, and remove them.

    Reports kinds and places, never a secret itself.
    """


@declare(
    "secrets scan",
    answer=Secrets,
    show=show_secrets,
    examples=(
        ("asnap secrets scan", "which sessions hold keys, tokens or passwords, and where"),
        ("asnap secrets scan latest --fix", "remove them from one"),
        ("asnap secrets scan --all --fix --yes", "from all, without a question"),
    ),
    exits=(3, 4, 5, 6, 7, 10),
)
@click.argument("ref", required=False)
@click.option("--all", "everything", is_flag=True, help="Every session; the same as no REF, but needed for --fix.")
@click.option(
    "--fix", is_flag=True, help="Save the sessions without secrets, and drop the snapshots that contain any."
)
@yes_option
async def scan(call: Call, *, ref: str | None, everything: bool, fix: bool) -> Secrets:
    """Find keys, tokens and passwords in all snapshots, in the trash, and in the names that asnap undo remembers.

    Exits with 1 if there are any. With --fix, they are replaced by [redacted:kind]; the snapshots with secrets go
    to the trash, until asnap purge.
    """
    if ref and everything:
        raise click.UsageError("REF and --all contradict each other.")
    if fix and not ref and not everything:
        raise click.UsageError("Say what to fix: REF or --all.")
    async with call.store() as store:
        metas = await _named(store, ref) if ref else await store.list()
        job = _SecretSearch(call, store)
        with progress(call.out, "searching", len(metas)) as step:
            for meta in metas:
                step(meta.session_id)
                await job.look(meta, alone=ref is not None and meta is metas[0])
        if ref is None:
            await job.look_into_trash()
        await job.look_into_log(None if ref is None else {meta.session_id for meta in metas})
        operation = await job.fix() if fix else None
    return Secrets(
        sessions=tuple(job.found.values()),
        searched=len(metas),
        operation=operation,
        operations=job.operations,
        fix=fix,
    )


command.add_command(scan, "scan")
scan.name = "scan"


async def _named(store: SnapshotStore, ref: str) -> Sequence[SnapshotMeta]:
    """The session that *ref* means, and its companions."""
    from snapshot_plugin.model.ids import companions

    known = {meta.session_id: meta for meta in await store.list()}
    target = refs.resolve(ref, list(known.values()))
    if target.seq is not None:
        raise click.UsageError("All snapshots of a session are searched; leave out the @.")
    return [target.meta, *(known[name] for name in companions(target.session_id, known))]


class _SecretSearch:
    """The results so far. A session that cannot be read does not affect the others."""

    def __init__(self, call: Call, store: SnapshotStore) -> None:
        self._call, self._store = call, store
        self._steps: list[Any] = []
        self.found: dict[str, LeakySession] = {}
        self._sessions: set[str] | None = None
        self.operations = 0

    async def look(self, meta: SnapshotMeta, *, alone: bool) -> None:
        from snapshot_plugin.operations.secrets import find_secrets

        session = LeakySession(session_id=meta.session_id, title=_safe_title(meta), secrets={})
        try:
            found = await find_secrets(self._store, meta.session_id)
        except SnapshotError as error:
            if alone:
                raise
            self.found[meta.session_id] = replace(session, code=error.code, problem=error.message)
            return
        if not found.is_clean or found.problem:
            self.found[meta.session_id] = _leaky(found, session.title)

    async def look_into_trash(self) -> None:
        from snapshot_plugin.operations.secrets import find_secrets_in_trash

        for found in await find_secrets_in_trash(self._store):
            self.found[f"trash {found.token}"] = _leaky(found, None)

    async def look_into_log(self, sessions: set[str] | None) -> None:
        from snapshot_plugin.operations.secrets import find_secrets_in_log

        self._sessions = sessions
        self.operations = await find_secrets_in_log(self._call.work.operations(self._store), sessions)

    async def fix(self) -> str | None:
        """Remove what was found; return the operation's name, if anything was."""
        import anyio

        from snapshot_plugin.operations.secrets import take_secrets_out_of_log

        todo = [session for session in self.found.values() if session.secrets and not session.trash]
        if not todo and not self.operations:
            return None
        places = [several(len(todo), "session")] if todo else []
        places += [several(self.operations, "operation") + " for undo"] if self.operations else []
        self._call.confirm(f"Remove the secrets from {' and '.join(places)}?")
        await take_secrets_out_of_log(self._call.work.operations(self._store), self._sessions)
        try:
            with progress(self._call.out, "fixing", len(todo)) as step:
                for session in todo:
                    step(session.session_id)
                    await self._fix(session, alone=len(todo) == 1)
        finally:  # after an interruption, undo still covers what was done
            with anyio.CancelScope(shield=True):
                operation = await self._record()
                await forget_index(self._call.work, self._store)
        return operation

    async def _fix(self, session: LeakySession, *, alone: bool) -> None:
        from snapshot_plugin.operations.secrets import take_secrets_out

        try:
            done = await take_secrets_out(self._store, session.session_id)
        except SnapshotError as error:
            if alone:
                raise
            self.found[session.session_id] = replace(session, code=error.code, problem=error.message)
            return
        self._steps += done.steps
        self.found[session.session_id] = replace(session, fixed=True, snapshot=done.snapshot, dropped=done.dropped)

    async def _record(self) -> str | None:
        if not self._steps:
            return None
        fixed = [session.session_id for session in self.found.values() if session.fixed]
        summary = f"secrets removed from {', '.join(fixed[:3])}" + (", …" if len(fixed) > 3 else "")  # noqa: PLR2004 — fits a line
        log = self._call.work.operations(self._store)
        return (await log.record(kind="secrets", summary=summary, steps=self._steps)).id


def _safe_title(meta: SnapshotMeta) -> str | None:
    from snapshot_plugin.model.redact import redact

    return redact(meta.title)[0]


def _leaky(found: SessionSecrets, title: str | None) -> LeakySession:
    return LeakySession.from_fields(
        found,
        title=title,
        secrets=dict(found.kinds),
        places=tuple(SecretPlace.from_fields(each, secret=each.kind) for each in found.places),
        trash=found.token,
    )
