"""Take a whole session out of a log, and put one into another: every snapshot, with its number, time and tags.

What is taken out is in the clear, with digests that depend on nothing but the content, so it is the same whichever
store it comes from. What is put in gets the digests and the seal of the store it goes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pydantic import ValidationError

from snapshot_plugin.codec.document import CHAIN_START, Digest, Document, chain_from, plain_digest, root_of
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.pack import open_snapshots, packed, payload_of
from snapshot_plugin.errors import Conflict, InvalidSnapshotVersion, SnapshotCorrupted, SnapshotNotFound
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model.snapshot import CURRENT_VERSION, SessionSnapshot
from snapshot_plugin.store.listing import meta_of
from snapshot_plugin.store.log import FrameLog, tip_of
from snapshot_plugin.store.reader import check_order, session_items

__all__ = ["Copied", "put_in", "take_out", "verified", "with_roots"]


class Copied(NamedTuple):
    """One snapshot as it travels: what its frame says about it, and the change that leads to it."""

    header: Header
    payload: bytes


def take_out(log: FrameLog, session_id: str, keys: SessionKeys | None) -> list[Copied]:
    """Every snapshot of a session, oldest first.

    Raises:
        SnapshotNotFound: there is no such session.
        SnapshotCorrupted, SnapshotTampered: a part of it is damaged: what is left would pass for the whole.
        InvalidSnapshotVersion: a newer release wrote a part of it.
    """
    items = [item for item in session_items(log, session_id) if item.kind != "unfinished"]
    if not items:
        raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
    if any(item.kind == "damage" for item in items):
        raise _damaged(session_id, "it holds bytes that are no snapshot")
    opened = [
        Copied(header, payload_of(lines))
        for item in items
        for header, lines in open_snapshots(item.data, session_id=session_id, keys=keys)
    ]
    digest = keys.digest if keys else plain_digest
    for stored, rebuilt in zip(opened, with_roots(opened, digest), strict=True):
        if stored.header.root != rebuilt.header.root:
            raise _damaged(session_id, f"snapshot {stored.header.hi} does not have the digest it was saved with")
    return [Copied(_unsealed(header), payload) for header, payload in with_roots(opened, plain_digest)]


def with_roots(copies: Iterable[Copied], digest: Digest) -> Iterator[Copied]:
    """The same snapshots with the roots their content has under *digest*.

    Raises:
        SnapshotCorrupted: they do not follow each other.
        InvalidSnapshotVersion: a newer release wrote one of them.
    """
    rebuilt = _Rebuilt(digest)
    for copy in copies:
        yield rebuilt.take(copy)


def verified(copies: Sequence[Copied]) -> SessionSnapshot:
    """The newest of *copies*, once all of them were found to be what they say.

    Raises:
        SnapshotCorrupted: a root is not that of the content, or something is not what it should be.
        InvalidSnapshotVersion: a newer release wrote one of them.
        InvalidSnapshot: the newest one is no session.
    """
    rebuilt = _Rebuilt(plain_digest)
    for copy in copies:
        again = rebuilt.take(copy).header
        if (again.root, again.prev) != (copy.header.root, copy.header.prev):
            raise SnapshotCorrupted(
                f"snapshot {again.hi} of session {again.sid} does not have the digest it says", session_id=again.sid
            )
        _check_listed(copy.header, rebuilt.document)
    return load_document(rebuilt.document.raw(copies[-1].header.sid))


def put_in(
    log: FrameLog,
    session_id: str,
    keys: SessionKeys | None,
    copies: Sequence[Copied],
    *,
    instead_of: Sequence[Copied] = (),
) -> None:
    """Make *copies* the session *session_id*. At once: all of it or nothing.

    *instead_of* is what was taken out of it before, and must still be all there is; nothing, for a new session.

    Raises:
        Conflict: there is such a session, or it is not what it was.
    """
    digest = keys.digest if keys else plain_digest
    frames = packed(
        (
            (replace(copy.header, sid=session_id), copy.payload.removesuffix(b"\n").split(b"\n"))
            for copy in with_roots(copies, digest)
        ),
        keys,
    )
    with log.exclusively(session_id):
        if not instead_of and tip_of(log.segments(session_id)) is not None:
            raise Conflict(f"there is a session {session_id}", session_id=session_id)
        if instead_of and _roots(take_out(log, session_id, keys)) != _roots(instead_of):
            raise Conflict(f"session {session_id} was changed meanwhile", session_id=session_id)
        log.replace(session_id, log.segments(session_id), frames, copies[-1].header.hi)


def _roots(copies: Sequence[Copied]) -> list[tuple[int, str]]:
    return [(copy.header.hi, copy.header.root) for copy in copies]


class _Rebuilt:
    """Follows snapshots in order; what a root costs depends on what changed."""

    def __init__(self, digest: Digest) -> None:
        self.document = Document()
        self._digest = digest
        self._digests: list[bytes] = []
        self._chain: list[bytes] = []
        self._last: Header | None = None
        self._given: Header | None = None

    def take(self, copy: Copied) -> Copied:
        header, payload = copy
        if header.v > CURRENT_VERSION:
            raise InvalidSnapshotVersion(
                f"snapshot {header.hi} of session {header.sid} has version {header.v}; "
                f"this release reads up to {CURRENT_VERSION}", session_id=header.sid,
            )  # fmt: skip
        check_order(header, self._given)
        if self._given is None and not (header.full and header.lo == 1):
            raise SnapshotCorrupted(
                f"session {header.sid} does not begin with its beginning", session_id=header.sid
            )
        self.document.apply(header, payload)
        root = self._root(header)
        self._given = header
        self._last = replace(header, root=root, prev=self._last.root if self._last else "")
        return Copied(self._last, payload)

    def _root(self, header: Header) -> str:
        if header.full:
            self._digests, self._chain = [], []
        inserted = self.document.messages[header.at : header.at + header.insert]
        self._digests[header.at : header.at + header.delete] = map(self._digest, inserted)
        start = self._chain[header.at - 1] if header.at else CHAIN_START
        self._chain[header.at :] = chain_from(start, self._digests[header.at :], self._digest)
        sections = map(self._digest, self.document.sections.values())
        return root_of(self._chain[-1] if self._chain else CHAIN_START, sections, self._digest)


def _check_listed(header: Header, document: Document) -> None:
    """What lists show must be of the right kind: nobody may break the list of a whole store."""
    try:
        meta_of(header, document.summary(), 0)
    except ValidationError as error:
        what = f"what snapshot {header.hi} of session {header.sid} tells lists is not of the right kind"
        raise SnapshotCorrupted(what, session_id=header.sid) from error


def _unsealed(header: Header) -> Header:
    return replace(header, sum="", kid="", nonce="")


def _damaged(session_id: str, why: str) -> SnapshotCorrupted:
    return SnapshotCorrupted(
        f"session {session_id} is damaged: {why}",
        session_id=session_id,
        hint="asnap check --repair keeps what is whole; then try again",
    )
