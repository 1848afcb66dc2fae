"""``asnap export``: sessions in a file, to keep, to carry elsewhere, or to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import click

from snapshot_plugin.cli import refs
from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.command import yes_option
from snapshot_plugin.cli.document import Document, Part
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.passphrase import passphrase, passphrase_options
from snapshot_plugin.cli.text import plain, size
from snapshot_plugin.errors import InvalidInput

if TYPE_CHECKING:
    from snapshot_plugin.codec.sources import KeySource
    from snapshot_plugin.exchange.rendering import TextForm
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Exported", "command"]

Form = Literal["bundle", "markdown", "html", "json"]
_FORMS: tuple[Form, ...] = ("bundle", "markdown", "html", "json")
_ENDINGS: dict[str, Form] = {
    "md": "markdown",
    "markdown": "markdown",
    "html": "html",
    "htm": "html",
    "json": "json",
}
_PARTIAL = 3
_BARED = "the store is encrypted, the bundle is not (--passphrase): keep it as you would keep the key"


class ExportedSession(Part):
    """A session in the file."""

    session_id: str
    seq: int
    """The newest snapshot in it."""
    snapshots: int
    messages: int
    problem: str | None = None
    """What was damaged and had to be left out."""


class Exported(Document):
    """What was written, and where."""

    kind: ClassVar[str] = "export"
    rows: ClassVar[str] = "sessions"
    format: Form
    file: str | None
    """Null for standard output."""
    size_bytes: int
    sha256: str
    sessions: tuple[ExportedSession, ...]
    redacted: dict[str, int]
    """How many secrets of each kind were taken out."""
    is_redacted: bool
    """Whether secrets were looked for."""
    is_sealed: bool = False
    """Whether only a passphrase opens it."""
    warning: str | None = None

    def show(self, out: Output) -> None:
        """See `Document`. The data itself is written already; this is about it."""
        number = len(self.sessions)
        what = (
            f"{number} session{'s' if number != 1 else ''}, {sum(s.snapshots for s in self.sessions)} snapshot(s)"
        )
        out.note(f"wrote {plain(self.file or 'standard output')}: {self.format}, {what}, {size(self.size_bytes)}")
        if self.redacted:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self.redacted.items())
            out.note(f"taken out: {kinds} (--no-redact keeps them)")
        for session in self.sessions:
            if session.problem:
                out.warn(
                    f"{plain(session.session_id)} is damaged: {plain(session.problem)}; what is whole was written"
                )
        if self.warning:
            out.warn(self.warning, fg="yellow")

    @property
    def exit_code(self) -> int:
        """Not 0 where something had to be left out."""
        return _PARTIAL if any(session.problem for session in self.sessions) else 0


@declare(
    "export",
    section="Share",
    answer=Exported,
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
    type=click.Choice(_FORMS),
    help="bundle, markdown, html or json; by the ending of FILE, else a bundle.",
)
@click.option("--redact/--no-redact", default=None, help="Take secrets out; default for markdown and html.")
@click.option(
    "--tools/--no-tools", default=True, help="With tool calls (default), or without, in markdown and html."
)
@click.option("--at", metavar="N", type=click.IntRange(min=1), help="As it was at this snapshot.")
@passphrase_options
@yes_option
async def command(
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
    """Write sessions to a file: a bundle with all of their history, or a text for people.

    A bundle is exact and comes back whole with asnap import. Markdown and HTML are made to be shown to others:
    secrets are taken out, and nothing that was said can do anything there.
    """
    chosen = form or _form_of(output)
    clean = chosen in ("markdown", "html") if redact is None else redact
    _check_output(call, output, chosen)
    source = passphrase(call, secret, new=True)
    if source and chosen != "bundle":
        raise InvalidInput(f"a passphrase is for bundles, not for {chosen}")
    if not tools and chosen in ("bundle", "json"):
        raise InvalidInput(f"--no-tools is for markdown and html, not for {chosen}")
    async with call.store() as store:
        targets = await _targets(store, references, at)
        if chosen == "bundle":
            made = await _bundle(store, targets, clean=clean)
        else:
            made = await _text(store, targets, chosen, tools=tools, clean=clean)
        is_bared = chosen == "bundle" and source is None and _is_encrypted(store, targets)
    if source:
        made = made._replace(data=_sealed(made.data, source, call))
    await _write(call, output, made.data)
    return _answer(made, form=chosen, output=output, clean=clean, is_bared=is_bared, is_sealed=source is not None)


def _form_of(output: str | None) -> Form:
    name = (output or "").rsplit("/", 1)[-1]
    return _ENDINGS.get(name.rpartition(".")[2].lower(), "bundle") if "." in name else "bundle"


def _check_output(call: Call, output: str | None, form: Form) -> None:
    to_stdout = output in (None, "-")
    if to_stdout and not call.out.is_text:
        raise InvalidInput("--json tells about the export, and the export goes to stdout", hint="give -o FILE")
    if to_stdout and form == "bundle" and call.out.is_terminal:
        raise InvalidInput("a bundle is not for a terminal", hint="give -o FILE, or --format markdown")


async def _targets(store: SnapshotStore, references: Sequence[str], at: int | None) -> list[refs.Target]:
    metas = await store.list()
    found = [refs.resolve(text, metas) for text in references]
    if at is not None:
        if len(found) > 1 or found[0].seq not in (None, at):
            raise InvalidInput("--at is for one session", hint="write session@N for each")
        found = [found[0]._replace(seq=at)]
    unique = {target.session_id: target for target in found}
    if len(unique) < len(set(found)):
        raise InvalidInput("one session at two snapshots does not fit into one file", hint="export them one by one")
    return list(unique.values())


class _Made(NamedTuple):
    data: bytes
    sessions: list[ExportedSession]
    redacted: dict[str, int]


async def _bundle(store: SnapshotStore, targets: Sequence[refs.Target], *, clean: bool) -> _Made:
    from snapshot_plugin.exchange.bundle import pack
    from snapshot_plugin.exchange.carrying import collect
    from snapshot_plugin.store.transfer import verified

    taken: Counter[str] = Counter()
    members = {}
    for target in targets:
        for copies in await collect(store, target.session_id, at=target.seq):
            members[copies[0].header.sid] = copies
    if clean:
        from snapshot_plugin.exchange.redacting import redacted

        for session_id, copies in members.items():
            members[session_id], found = redacted(copies)
            taken.update(found.counts)
    sessions = [
        ExportedSession(
            session_id=session_id,
            seq=copies[-1].header.hi,
            snapshots=len(copies),
            messages=len(verified(copies).messages),
        )
        for session_id, copies in members.items()
    ]
    return _Made(pack(list(members.values())), sessions, dict(taken))


async def _text(
    store: SnapshotStore, targets: Sequence[refs.Target], form: TextForm, *, tools: bool, clean: bool
) -> _Made:
    from snapshot_plugin.exchange.rendering import render

    read = [await store.read(target.session_id, at=target.seq) for target in targets]
    rendered = render([each.snapshot for each in read], form, tools=tools, redacted=clean)
    sessions = [
        ExportedSession(
            session_id=each.ref.session_id,
            seq=each.ref.seq,
            snapshots=1,
            messages=len(each.snapshot.messages),
            problem=each.skipped[0].detail if each.skipped else None,
        )
        for each in read
    ]
    return _Made(rendered.text.encode(), sessions, rendered.redacted.counts)


def _sealed(data: bytes, source: KeySource, call: Call) -> bytes:
    from snapshot_plugin.exchange.sealing import seal

    return seal(data, source, now=call.now)


def _is_encrypted(store: SnapshotStore, targets: Sequence[refs.Target]) -> bool:
    keys = getattr(store, "session_keys", lambda _session_id: None)
    return any(keys(target.session_id) is not None for target in targets)


async def _write(call: Call, output: str | None, data: bytes) -> None:
    if output in (None, "-"):
        call.out.raw(data)
        return
    from pathlib import Path

    import anyio
    import anyio.to_thread

    from snapshot_plugin.store.files import disk_errors, replace_file

    path = anyio.Path(str(output))
    if await path.is_dir():
        raise InvalidInput(f"{output} is a directory", hint="name a file in it")
    if await path.exists():
        call.confirm(f"{output} is there. Write over it?")

    def write() -> None:
        with disk_errors(f"writing {output}"):
            replace_file(Path(str(output)), data)

    await anyio.to_thread.run_sync(write)


def _answer(
    made: _Made, *, form: Form, output: str | None, clean: bool, is_bared: bool, is_sealed: bool
) -> Exported:
    import hashlib

    return Exported(
        format=form,
        file=None if output in (None, "-") else output,
        size_bytes=len(made.data),
        sha256=hashlib.sha256(made.data).hexdigest(),
        sessions=tuple(made.sessions),
        redacted=made.redacted,
        is_redacted=clean,
        is_sealed=is_sealed,
        warning=_BARED if is_bared else None,
    )
