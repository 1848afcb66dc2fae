"""Sessions as one file: a bundle with all of their history, or a text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.references import Target, resolve

if TYPE_CHECKING:
    from snapshot_plugin.codec.sources import KeySource
    from snapshot_plugin.exchange.rendering import TextForm
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["FORMS", "Export", "Exported", "ExportedSession", "Form", "export"]

Form = Literal["bundle", "markdown", "html", "json"]
FORMS: tuple[Form, ...] = ("bundle", "markdown", "html", "json")
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
    """How many secrets of each kind were removed."""
    is_redacted: bool
    """Whether secrets were searched for."""
    is_sealed: bool = False
    """Whether it is encrypted with a passphrase."""
    warning: str | None = None

    @property
    def exit_code(self) -> int:
        """Not 0 if something was left out."""
        return PARTIAL if any(session.problem for session in self.sessions) else 0


class Export(NamedTuple):
    """The file's bytes, and the answer about them."""

    data: bytes
    about: Exported


async def export(
    work: Work,
    store: SnapshotStore,
    references: Sequence[str],
    *,
    form: Form,
    clean: bool,
    tools: bool = True,
    at: int | None = None,
    output: str | None = None,
    source: KeySource | None = None,
) -> Export:
    """Make the file. *clean* removes secrets, *source* encrypts a bundle, *output* names the file in the answer.

    Raises:
        InvalidInput: one session at two snapshots, or an option that the form does not have.
    """
    if source and form != "bundle":
        raise InvalidInput(f"a passphrase is for bundles, not for {form}")
    if not tools and form in ("bundle", "json"):
        raise InvalidInput(f"--no-tools is for markdown and html, not for {form}")
    targets = await _targets(store, references, at)
    if form == "bundle":
        made = await _bundle(store, targets, clean=clean)
    else:
        made = await _text(store, targets, form, tools=tools, clean=clean)
    is_bared = form == "bundle" and source is None and _is_encrypted(store, targets)
    if source:
        from snapshot_plugin.exchange.sealing import seal

        made = made._replace(data=seal(made.data, source, now=work.now))
    about = _answer(made, form=form, output=output, clean=clean, is_bared=is_bared, is_sealed=source is not None)
    return Export(made.data, about)


async def _targets(store: SnapshotStore, references: Sequence[str], at: int | None) -> list[Target]:
    metas = await store.list()
    found = [resolve(text, metas) for text in references]
    if at is not None:
        if len(found) > 1 or found[0].seq not in (None, at):
            raise InvalidInput("--at is for one session", hint="write session@N for each")
        found = [found[0]._replace(seq=at)]
    unique = {target.session_id: target for target in found}
    if len(unique) < len(set(found)):
        raise InvalidInput("one file cannot hold two snapshots of one session", hint="export them one by one")
    return list(unique.values())


class _Made(NamedTuple):
    data: bytes
    sessions: list[ExportedSession]
    redacted: dict[str, int]


async def _bundle(store: SnapshotStore, targets: Sequence[Target], *, clean: bool) -> _Made:
    from snapshot_plugin.exchange.bundle import pack
    from snapshot_plugin.exchange.carrying import collect
    from snapshot_plugin.store.transfer import verified

    taken: Counter[str] = Counter()
    members = {}
    for target in targets:
        for copies in await collect(store, target.session_id, at=target.seq):
            members[copies[0].header.sid] = copies
    if clean:
        from snapshot_plugin.exchange.carrying import redacted

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
    store: SnapshotStore, targets: Sequence[Target], form: TextForm, *, tools: bool, clean: bool
) -> _Made:
    from snapshot_plugin.exchange.rendering import render

    read = [await store.read(target.session_id, at=target.seq) for target in targets]
    rendered = render([each.snapshot for each in read], form, tools=tools, redacted=clean)
    sessions = [
        ExportedSession.from_fields(
            each.ref,
            snapshots=1,
            messages=len(each.snapshot.messages),
            problem=each.skipped[0].detail if each.skipped else None,
        )
        for each in read
    ]
    return _Made(rendered.text.encode(), sessions, rendered.redacted.counts)


def _is_encrypted(store: SnapshotStore, targets: Sequence[Target]) -> bool:
    keys = getattr(store, "session_keys", lambda _session_id: None)
    return any(keys(target.session_id) is not None for target in targets)


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
