"""``export``, ``import`` and ``secrets``: sessions as files, and what must not be in them."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.command import yes_option
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.cli.progress import progress
from snapshot_plugin.cli.secret_options import passphrase, passphrase_options
from snapshot_plugin.errors import (
    Damaged,
    InvalidInput,
    KeyMissing,
    LimitExceeded,
    NotFound,
    SnapshotError,
    StoreNotFound,
    StoreUnavailable,
)
from snapshot_plugin.model.ids import as_reference, is_companion
from snapshot_plugin.operations import references as refs
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.exporting import FORMS, Exported, Form, export
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.searching import forget_index
from snapshot_plugin.operations.text import plain, several, size

if TYPE_CHECKING:
    from snapshot_plugin.exchange.carrying import Arrival
    from snapshot_plugin.exchange.reading import Contents
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.operations.secrets import SessionSecrets
    from snapshot_plugin.store.base import SnapshotStore
    from snapshot_plugin.store.transfer import Copied

__all__ = ["Imported", "Secrets", "export_command", "form_of", "import_command", "secrets_command", "take_in"]

# asnap export -------------------------------------------------------------------------------------------------


_EXPORT_ENDINGS: dict[str, Form] = {
    "md": "markdown",
    "markdown": "markdown",
    "html": "html",
    "htm": "html",
    "json": "json",
}


def show_export(answer: Exported, out: Output) -> None:
    """Print what was written."""
    number = len(answer.sessions)
    what = f"{several(number, 'session')}, {several(sum(s.snapshots for s in answer.sessions), 'snapshot')}"
    out.note(f"wrote {plain(answer.file or 'standard output')}: {answer.format}, {what}, {size(answer.size_bytes)}")
    if answer.redacted:
        kinds = ", ".join(f"{count} {kind}" for kind, count in answer.redacted.items())
        out.note(f"removed: {kinds} (--no-redact keeps them)")
    for session in answer.sessions:
        if session.problem:
            out.warn(
                f"{plain(session.session_id)} is damaged: {plain(session.problem)}; the intact part was written"
            )
    if answer.warning:
        out.warn(answer.warning, fg="yellow")


@declare(
    "export",
    answer=Exported,
    show=show_export,
    examples=(
        ("asnap export latest -o session.asnap", "everything, with its history, in one file"),
        ("asnap export fix-auth -o fix-auth.html", "a page to read and to show, without secrets"),
        ("asnap export latest --format markdown | less", "the conversation as Markdown"),
        ("asnap export latest -o x.asnap --passphrase", "a bundle that only a passphrase opens"),
        ("asnap export 01jd 01je -o - | ssh there asnap import -", "two sessions to another machine"),
    ),
    exits=(3, 4, 5, 7, 10),
)
@click.argument("references", metavar="REF...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="Where to; - is standard output, which is also the default.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="bundle, markdown, html or json; by the ending of FILE, else a bundle.",
)
@click.option("--redact/--no-redact", default=None, help="Remove secrets; the default for markdown and html.")
@click.option(
    "--tools/--no-tools", default=True, help="With tool calls (default), or without, in markdown and html."
)
@click.option("--at", metavar="N", type=click.IntRange(min=1), help="As it was at this snapshot.")
@passphrase_options
@yes_option
async def export_command(
    call: Call,
    *,
    references: tuple[str, ...],
    output: str | None,
    form: Form | None,
    redact: bool | None,
    tools: bool,
    at: int | None,
    **secret: Any,
) -> Exported:
    """Write sessions to a file: a bundle with their whole history, or a readable text.

    A bundle is exact; asnap import restores it. Markdown and HTML are for sharing: secrets are removed, and markup
    in messages is made inert.
    """
    chosen = form or form_of(output)
    clean = chosen in ("markdown", "html") if redact is None else redact
    _check_output(call, output, chosen)
    source = passphrase(call, secret, new=True)
    async with call.store() as store:
        made = await export(
            call.work,
            store,
            references,
            form=chosen,
            clean=clean,
            tools=tools,
            at=at,
            output=None if output in (None, "-") else output,
            source=source,
        )
    await _write(call, output, made.data)
    return made.about


def form_of(output: str | None) -> Form:
    """Return the format for a file name's suffix; a bundle if it is unknown."""
    name = (output or "").rsplit("/", 1)[-1]
    return _EXPORT_ENDINGS.get(name.rpartition(".")[2].lower(), "bundle") if "." in name else "bundle"


def _check_output(call: Call, output: str | None, form: Form) -> None:
    to_stdout = output in (None, "-")
    if to_stdout and not call.out.is_text:
        raise InvalidInput("--json describes the export, and the export itself goes to stdout", hint="give -o FILE")
    if to_stdout and form == "bundle" and call.out.is_terminal:
        raise InvalidInput("a bundle is not for a terminal", hint="give -o FILE, or --format markdown")


async def _write(call: Call, output: str | None, data: bytes) -> None:
    if output in (None, "-"):
        call.out.raw(data)
        return
    from pathlib import Path

    import anyio
    import anyio.to_thread

    from snapshot_plugin.system.files import disk_errors, replace_file

    path = anyio.Path(str(output))
    if await path.is_dir():
        raise InvalidInput(f"{output} is a directory", hint="name a file in it")
    if await path.exists():
        call.confirm(f"{output} exists. Overwrite it?")

    def write() -> None:
        with disk_errors(f"writing {output}"):
            replace_file(Path(str(output)), data)

    await anyio.to_thread.run_sync(write)


# asnap import -------------------------------------------------------------------------------------------------


_MAX_FILE = 1 << 30
_STEP = 1 << 20
_FORMATS = ("auto", "bundle", "claude-code", "codex", "opencode", "openagent", "oneringai", "orbitmesh", "json")
_BESIDE = {"memory.json", "plugins", "custom_instructions.md"}
"""What an oneringai agent's directory holds beside its session."""
_IMPORT_ENDINGS = (".asnap", ".json", ".jsonl")
"""What a session file in a directory is called."""
_SAID = {
    "imported": "imported",
    "updated": "updated",
    "renamed": "imported under a new id",
    "already_there": "already there",
}


class ImportedSession(Part):
    """The result for one session."""

    outcome: Literal["imported", "updated", "renamed", "already_there"]
    session_id: str
    source_id: str
    """The id it has in the file."""
    title: str | None
    snapshots: int
    messages: int
    cwd: str | None
    with_memory: bool
    """Whether its working memory came along."""


class Imported(Document):
    """What a file contained, and the result for each session."""

    kind: ClassVar[str] = "import"
    rows: ClassVar[str] = "sessions"
    format: str
    dry_run: bool
    paths: dict[str, str]
    """Directories that are elsewhere here, as --map says."""
    sessions: tuple[ImportedSession, ...]


def show_import(answer: Imported, out: Output) -> None:
    """Print what a file contained, and the result for each session."""
    columns = (Column("SESSION"), Column("MESSAGES", right=True), Column("SNAPSHOTS", right=True), Column(""))
    rows = [
        (plain(s.session_id), str(s.messages), str(s.snapshots), _SAID[s.outcome], plain(s.title or ""))
        for s in answer.sessions
    ]
    out.table((*columns, Column("TITLE", flexible=True)), rows)
    for session in answer.sessions:
        if session.outcome == "renamed" and is_companion(session.source_id):
            out.note(f"{plain(session.source_id)} is the id of a hidden part of another session")
        elif session.outcome == "renamed":
            out.note(f"{plain(session.source_id)} is the id of another session here, which was not changed")
    new = [session for session in answer.sessions if session.outcome != "already_there"]
    if answer.paths and new:
        out.note("the directories were replaced; messages still name the old ones")
    if answer.dry_run:
        out.note("nothing was written: this was a dry run")
    elif new:
        named = shlex.quote(plain(as_reference(new[0].session_id)))
        resume, undo = out.run(f"asnap resume {named}"), out.run("asnap undo")
        out.note(f"to continue: {resume}; to undo: {undo}")


@declare(
    "import",
    answer=Imported,
    show=show_import,
    examples=(
        ("asnap import session.asnap", "a bundle, with all of its history"),
        ("asnap import b.asnap --map /home/ann=/home/bob", "if the directories differ on this machine"),
        ("asnap import ~/.claude/projects/-work/1b2c….jsonl", "a session of Claude Code"),
        ("asnap import ~/.oneringai/agents/bot/", "an oneringai agent: session, memory, plugins, instructions"),
        ("asnap import ~/.orbitmesh/sessions exports/*.asnap", "several files, and all of a directory"),
        ("ssh there asnap export latest | asnap import -", "from another machine"),
    ),
    exits=(4, 5, 6, 7, 8),
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--map", "maps", metavar="OLD=NEW", multiple=True, help="Replace this directory by another; may be repeated."
)
@click.option("--as", "under", metavar="ID", help="The id it gets here; for a file with one session.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="auto",
    help="The format of FILE, if it is not detected.",
)
@passphrase_options
async def import_command(
    call: Call,
    *,
    files: tuple[str, ...],
    maps: tuple[str, ...],
    under: str | None,
    dry_run: bool,
    form: str,
    **secret: Any,
) -> Imported:
    """Read sessions from files: bundles, or session files of other tools. - is standard input.

    In a directory, every session file in it and below is read; other files are named and skipped.

    A session that was continued elsewhere is updated. A session with other content is left alone, and the imported
    one gets a new id; so does one whose id would make it a hidden part of another session. --map changes the
    session's directories, not its messages. Either everything is imported or nothing.
    """
    from snapshot_plugin.exchange.carrying import bring

    paths = _paths(maps)
    found = await _found(call, files, secret, wanted=None if form == "auto" else form)
    async with _place(call, dry_run=dry_run) as store:
        arrivals: Sequence[Arrival]
        if dry_run:
            arrivals = await bring(store, found.sessions, paths=paths, under=under, dry_run=True)
        else:
            arrivals = await take_in(call, store, found.sessions, paths=paths, under=under)
    return Imported(format=found.format, dry_run=dry_run, paths=paths, sessions=tuple(map(_row, arrivals)))


async def take_in(
    call: Call, store: SnapshotStore, sessions: Sequence[Sequence[Copied]], **how: Any
) -> tuple[Arrival, ...]:
    """Import sessions into *store*, recorded for undo. Their commands need confirmation before they run."""
    from snapshot_plugin.exchange.carrying import bring
    from snapshot_plugin.operations.command_trust import command_trust

    def distrust(arrivals: Sequence[Arrival]) -> None:
        """Before they are stored: a session may not be there without the note that it came from elsewhere."""
        new = (arrival.session_id for arrival in arrivals if arrival.outcome != "already_there")
        command_trust(call.work, store).imported(new)

    arrivals = await bring(store, sessions, before=distrust, **how)
    await _record(call, store, arrivals)
    return arrivals


async def _found(call: Call, files: Sequence[str], secret: dict[str, Any], *, wanted: str | None) -> Contents:
    """Return the sessions in *files*; for a directory, those of its session files."""
    from snapshot_plugin.exchange import reading

    formats: set[str] = set()
    sessions: list[Sequence[Copied]] = []
    for file, is_named in _expanded(files):
        try:
            data = _opened(call, await _read(file, is_named=is_named), secret)
            contents = await reading.read_sessions(data, now=call.now, wanted=wanted)
        except (InvalidInput, Damaged) as error:
            if is_named:
                raise
            call.out.note(f"skipped {plain(file)}: {plain(error.message)}", fg="yellow")
            continue
        formats.add(contents.format)
        sessions += contents.sessions
    if not formats:
        raise InvalidInput(f"no session is in {', '.join(files)}", hint="name the files themselves")
    return reading.Contents(formats.pop() if len(formats) == 1 else "several", sessions)


def _expanded(files: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each file and whether it was named itself; a directory yields the files that may be sessions."""
    for name in (file.rstrip("/") or file for file in files):
        if name == "-" or not os.path.isdir(name):  # noqa: PTH112 — text
            yield name, True
            continue
        for directory, below, names in os.walk(name):
            below.sort()
            if "session.json" in names and _BESIDE.intersection(names + below):  # an oneringai agent's: one session
                below.clear()
                yield directory, directory == name
                continue
            wanted = (each for each in sorted(names) if each.endswith(_IMPORT_ENDINGS))
            yield from ((f"{directory}/{each}", False) for each in wanted)


def _paths(maps: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in maps]
    for old, _, new in pairs:
        if not old or not new:
            raise InvalidInput(f"--map {old}{new} is not OLD=NEW", hint="for example --map /home/ann=/home/bob")
    return {old: new for old, _, new in pairs}


@asynccontextmanager
async def _place(call: Call, *, dry_run: bool) -> AsyncIterator[SnapshotStore]:
    """The store, created if missing; a dry run uses an empty store in memory instead."""
    if not dry_run:
        async with call.store(create=True) as store:
            yield store
        return
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(call.store())
        except StoreNotFound:
            from snapshot_plugin.store.memory import MemoryStore

            store = await stack.enter_async_context(MemoryStore())
        yield store


async def _read(file: str, *, is_named: bool) -> bytes:
    import sys

    import anyio.to_thread

    def read() -> bytes:
        if file == "-":
            return _bounded(sys.stdin.buffer)
        if os.path.isdir(file):  # noqa: PTH112 — text
            from snapshot_plugin.exchange.foreign import read_directory

            return read_directory(file, limit=_MAX_FILE)
        with open(file, "rb", opener=None if is_named else _regular) as stream:
            return _bounded(stream)

    try:
        data = await anyio.to_thread.run_sync(read)
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}", hint="check the name", run="asnap import --help") from None
    except OSError as error:
        raise StoreUnavailable(f"reading {file} failed: {error.strerror}", hint="") from error
    if len(data) > _MAX_FILE:
        raise LimitExceeded(f"{file} is larger than {_MAX_FILE} bytes", hint="export fewer sessions into each file")
    return data


def _regular(file: str, flags: int) -> int:
    """Open a file of a directory that others may have filled: links, pipes and devices are refused."""
    import stat

    if not stat.S_ISREG(os.lstat(file).st_mode):
        raise InvalidInput("it is not a regular file", hint="name it to import it")
    return os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _bounded(stream: IO[bytes]) -> bytes:
    """Read at most one byte more than a file may have. In steps: Python would reserve the whole size."""
    data = bytearray()
    while len(data) <= _MAX_FILE and (more := stream.read(min(_STEP, _MAX_FILE + 1 - len(data)))):
        data += more
    return bytes(data)


def _opened(call: Call, data: bytes, secret: dict[str, Any]) -> bytes:
    """Return the content of a file sealed with a passphrase; other files unchanged."""
    from snapshot_plugin.exchange.sealing import is_sealed, unseal

    if not is_sealed(data):
        return data
    secret["ask"] = secret["ask"] or (call.may_ask and not any(secret.values()))
    source = passphrase(call, secret, new=False)
    if source is None:
        raise KeyMissing("the bundle was sealed with a passphrase", hint="give it with --passphrase-file")
    return unseal(data, source)


async def _record(call: Call, store: SnapshotStore, arrivals: Sequence[Arrival]) -> None:
    new = [arrival.session_id for arrival in arrivals if arrival.outcome != "already_there"]
    if not new:
        return
    summary = f"import of {new[0]}" if len(new) == 1 else f"import of {len(new)} sessions"
    steps = [step for arrival in arrivals for step in await _undoing(store, arrival)]
    await call.work.operations(store).record(kind="import", summary=summary, steps=steps)


async def _undoing(store: SnapshotStore, arrival: Arrival) -> list[dict[str, Any]]:
    from snapshot_plugin.operations.undo import deletion

    if arrival.was_at is not None:  # the memory stays: it holds its earlier state, which the session refers to
        return [{"do": "revert", "session_id": arrival.session_id, "seq": arrival.was_at}]
    return [await deletion(store, session_id) for session_id in arrival.made]


def _row(arrival: Arrival) -> ImportedSession:
    newest = arrival.newest
    return ImportedSession.from_fields(arrival, title=newest.title, cwd=newest.config.cwd)


# asnap secrets ------------------------------------------------------------------------------------------------


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
def secrets_command() -> None:
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


secrets_command.add_command(scan, "scan")
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
