"""Take a whole session out of a log, and put one into another: every snapshot, with its number, time and tags.

The output is plaintext with digests of the content only, so it is the same from any store. On input, snapshots get
the digests and the seal of the target store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from snapshot_plugin.codec.document import Digest, StoredDocument, plain_digest
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.pack import packed, payload_of
from snapshot_plugin.errors import Conflict, SnapshotCorrupted, SnapshotNotFound
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.listing import meta_of
from snapshot_plugin.store.log import Frame, FrameLog, frames_in, session_frames, tip_of
from snapshot_plugin.store.trash import trashed_segments
from snapshot_plugin.store.walk import Replay, check_version, whole

__all__ = ["Copied", "copies_in_trash", "put_in", "take_out", "verified", "with_roots"]


class Copied(NamedTuple):
    """One exported snapshot: the facts in its frame, and the change that leads to it."""

    header: Header
    payload: bytes


def take_out(log: FrameLog, session_id: str, keys: SessionKeys | None) -> list[Copied]:
    """Every snapshot of a session, oldest first.

    Raises:
        SnapshotNotFound: there is no such session.
        SnapshotCorrupted, SnapshotTampered: a part is damaged, and the rest would look complete.
        InvalidSnapshotVersion: a newer release wrote a part of it.
    """
    return _taken_out(session_frames(log, session_id), session_id, keys)


def copies_in_trash(log: FrameLog, entry: Trashed, keys: SessionKeys | None) -> list[Copied]:
    """Every snapshot of a session in the trash, which stays there. Raises as `take_out` does."""
    return _taken_out(frames_in(trashed_segments(log, entry.token)), entry.session_id, keys)


def _taken_out(frames: Sequence[Frame], session_id: str, keys: SessionKeys | None) -> list[Copied]:
    opened = [
        Copied(header, payload_of(lines))
        for each in whole(frames, session_id, keys)
        for header, lines in each.changes
    ]
    if not opened:
        raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
    return [Copied(_unsealed(header), payload) for header, payload in with_roots(opened, plain_digest)]


def with_roots(copies: Iterable[Copied], digest: Digest) -> Iterator[Copied]:
    """The same snapshots with the roots their content has under *digest*.

    Raises:
        SnapshotCorrupted: they do not follow each other.
        InvalidSnapshotVersion: a newer release wrote one of them.
    """
    for copy, _ in _renewed(copies, digest):
        yield copy


def verified(copies: Sequence[Copied]) -> SessionSnapshot:
    """The newest of *copies*, after verifying all of them.

    Raises:
        SnapshotCorrupted: a root does not match the content, or a value is invalid.
        InvalidSnapshotVersion: a newer release wrote one of them.
        InvalidSnapshot: the newest one is not a session.
    """
    document = StoredDocument()
    for copy, (again, document) in zip(copies, _renewed(copies, plain_digest), strict=True):
        header = again.header
        if (header.root, header.prev) != (copy.header.root, copy.header.prev):
            raise SnapshotCorrupted(
                f"snapshot {header.hi} of session {header.sid} does not have the digest it says",
                session_id=header.sid,
            )
        _check_listed(copy.header, document)
    return load_document(document.raw(copies[-1].header.sid))


def _renewed(copies: Iterable[Copied], digest: Digest) -> Iterator[tuple[Copied, StoredDocument]]:
    """Each of *copies* with the root it has under *digest*, and the session as it is then."""
    walk: Replay | None = None
    for header, payload in copies:
        check_version(header)
        if not payload.endswith(b"\n"):
            raise SnapshotCorrupted(f"snapshot {header.hi} ends in the middle of a line", session_id=header.sid)
        walk = walk or Replay(header.sid, digest)
        before = walk.root
        if gap := walk.take(header, payload[:-1].split(b"\n"), verify=False):
            raise gap
        yield Copied(header._replace(root=walk.root, prev=before), payload), walk.document


def put_in(
    log: FrameLog,
    session_id: str,
    keys: SessionKeys | None,
    copies: Sequence[Copied],
    *,
    instead_of: Sequence[Copied] = (),
) -> None:
    """Store *copies* as the session *session_id*, atomically.

    *instead_of* is the content taken out before, which must still be the whole session; empty for a new session.

    Raises:
        Conflict: the session exists, or it changed meanwhile.
    """
    digest = keys.digest if keys else plain_digest
    frames = packed(
        (
            (copy.header._replace(sid=session_id), copy.payload.removesuffix(b"\n").split(b"\n"))
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


def _check_listed(header: Header, document: StoredDocument) -> None:
    """Validate the fields that lists show: one bad session must not break the list of a store."""
    try:
        meta_of(header, document.summary(), 0)
    except ValidationError as error:
        what = f"what snapshot {header.hi} of session {header.sid} tells lists is not of the right kind"
        raise SnapshotCorrupted(what, session_id=header.sid) from error


def _unsealed(header: Header) -> Header:
    return header._replace(sum="", kid="", nonce="")
