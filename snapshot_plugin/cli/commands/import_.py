"""``asnap import``: sessions from a file, ours or another tool's."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.cli.passphrase import passphrase, passphrase_options
from snapshot_plugin.errors import (
    Damaged,
    InvalidInput,
    KeyMissing,
    LimitExceeded,
    NotFound,
    StoreNotFound,
    StoreUnavailable,
)
from snapshot_plugin.model.ids import as_reference, is_companion
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.text import plain

if TYPE_CHECKING:
    from snapshot_plugin.exchange.carrying import Arrival
    from snapshot_plugin.exchange.reading import Contents
    from snapshot_plugin.store.base import SnapshotStore
    from snapshot_plugin.store.transfer import Copied

__all__ = ["Imported", "command", "take_in"]

_MAX_FILE = 1 << 30
_STEP = 1 << 20
_FORMATS = ("auto", "bundle", "claude-code", "codex", "opencode", "openagent", "oneringai", "orbitmesh", "json")
_BESIDE = {"memory.json", "plugins", "custom_instructions.md"}
"""What an oneringai agent's directory holds beside its session."""
_ENDINGS = (".asnap", ".json", ".jsonl")
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
async def command(
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
            wanted = (each for each in sorted(names) if each.endswith(_ENDINGS))
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
    from snapshot_plugin.operations.log import deletion

    if arrival.was_at is not None:  # the memory stays: it holds its earlier state, which the session refers to
        return [{"do": "revert", "session_id": arrival.session_id, "seq": arrival.was_at}]
    return [await deletion(store, session_id) for session_id in arrival.made]


def _row(arrival: Arrival) -> ImportedSession:
    newest = arrival.newest
    return ImportedSession.from_fields(arrival, title=newest.title, cwd=newest.config.cwd)
