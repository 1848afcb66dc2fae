"""Walk through a session's frames in order, rebuilding each snapshot from the one before.

Check, repair, salvage, forgetting and moving all go through `replay` (which reports damage and continues) or
`whole` (which raises at the first damage). Only `reader.find` reads backwards, to load the newest snapshot fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from snapshot_plugin.codec.document import CHAIN_START, Digest, StoredDocument, chain_from, plain_digest, root_of
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.pack import Snapshot, open_snapshots
from snapshot_plugin.codec.scan import Piece
from snapshot_plugin.errors import InvalidSnapshotVersion, SnapshotCorrupted, SnapshotError
from snapshot_plugin.model.snapshot import CURRENT_VERSION
from snapshot_plugin.store.base import Finding
from snapshot_plugin.store.log import FrameReader, Segment, pieces_of, undisturbed

__all__ = [
    "Item",
    "Rebuilt",
    "Replayed",
    "check_order",
    "check_version",
    "item_of",
    "items_in",
    "open_item",
    "replay",
    "session_items",
    "whole",
]


class Item(NamedTuple):
    """A frame, or a stretch of damage, and where it is."""

    kind: str
    header: Header | None
    data: bytes
    segment: Segment
    offset: int

    def finding(self, session_id: str, kind: str, detail: str) -> Finding:
        """A report about this place."""
        return Finding(
            session_id=session_id, kind=kind, detail=detail, file=self.segment.name, offset=self.offset,
            seq=self.header.hi if self.header else None,
        )  # fmt: skip


def session_items(log: FrameReader, session_id: str) -> list[Item]:
    """Everything in a session's log, oldest first, unfinished saves included."""
    return undisturbed(session_id, lambda: items_in(log.segments(session_id)))


def items_in(segments: Sequence[Segment]) -> list[Item]:
    """Everything in these segments, which follow each other, oldest first."""
    items: list[Item] = []
    following = None
    for segment in reversed(segments):
        data = segment.read()
        items[:0] = [item_of(piece, data, segment) for piece in pieces_of(segment, data, following)]
        following = segment
    return items


def item_of(piece: Piece, data: bytes, segment: Segment) -> Item:
    """A piece of a segment with its bytes."""
    return Item(piece.kind, piece.header, data[piece.start : piece.end], segment, piece.start)


def open_item(item: Item, session_id: str, keys: SessionKeys | None) -> list[Snapshot]:
    """The snapshots of a frame, every byte of it checked.

    Raises:
        SnapshotCorrupted, SnapshotTampered: the frame is damaged.
        WrongKey: it is sealed with a key this store object does not have (yet).
        InvalidSnapshotVersion: a newer release wrote it.
    """
    if item.kind == "damage":
        raise SnapshotCorrupted(
            f"{len(item.data)} bytes that are not a frame of this segment", session_id=session_id
        )
    snapshots = open_snapshots(item.data, session_id=session_id, keys=keys)
    for header, _ in snapshots:
        check_version(header)
    return snapshots


def check_version(header: Header) -> None:
    """Raise `InvalidSnapshotVersion` for a snapshot of a newer release."""
    if header.v > CURRENT_VERSION:
        raise InvalidSnapshotVersion(
            f"snapshot {header.hi} of session {header.sid} has version {header.v}; "
            f"this release reads up to {CURRENT_VERSION}",
            session_id=header.sid,
        )


def check_order(header: Header, last: Header | None) -> None:
    """Raise `SnapshotCorrupted` unless a frame builds on the one before."""
    if last is not None and (header.lo != last.hi + 1 or (header.prev != last.root and not header.full)):
        raise SnapshotCorrupted(f"snapshot {header.hi} does not follow snapshot {last.hi}", session_id=header.sid)


class Rebuilt:
    """A document that snapshots are applied to in order. The root of each costs what changed."""

    def __init__(self, digest: Digest) -> None:
        self.document = StoredDocument()
        self._digest = digest
        self._digests: list[bytes] = []
        self._chain: list[bytes] = []
        self._sections: dict[bytes, tuple[bytes, bytes]] = {}

    def take(self, header: Header, lines: Sequence[bytes]) -> str:
        """Apply one snapshot's change; returns the root of the result."""
        self.document.take(header, lines)
        if header.full:
            self._digests, self._chain = [], []
        inserted = self.document.messages[header.at : header.at + header.insert]
        self._digests[header.at : header.at + header.delete] = map(self._digest, inserted)
        start = self._chain[header.at - 1] if header.at else CHAIN_START
        self._chain[header.at :] = chain_from(start, self._digests[header.at :], self._digest)
        return root_of(self._chain[-1] if self._chain else CHAIN_START, self._section_digests(), self._digest)

    def _section_digests(self) -> list[bytes]:
        known = self._sections
        self._sections = {
            key: known[key] if key in known and known[key][0] is line else (line, self._digest(line))
            for key, line in self.document.sections.items()
        }
        return [digest for _, digest in self._sections.values()]


class Replayed(NamedTuple):
    """One item of the log after it was opened and applied."""

    item: Item
    snapshots: list[Snapshot]
    """What it holds; empty if it cannot be opened."""
    error: SnapshotError | None
    """What is wrong: it cannot be opened, or does not fit what is before it."""
    loads: bool
    """Whether its snapshots can be rebuilt exactly."""

    def finding(self, session_id: str) -> Finding | None:
        """The finding that `check` reports."""
        if self.item.kind == "unfinished":
            return self.item.finding(session_id, "unfinished", "a save that was never acknowledged")
        if self.error is None:
            return None
        kind = "chain" if isinstance(self.error, _Chain) else self.error.code
        return self.item.finding(session_id, kind, self.error.message)


class _Chain(SnapshotCorrupted):
    """The frame itself is intact, but its base is missing."""


def replay(items: Iterable[Item], session_id: str, keys: SessionKeys | None) -> Iterator[Replayed]:
    """Each item with its snapshots and its damage. Roots are verified; damage does not end the walk."""
    walk = _Walk(session_id, keys)
    for item in items:
        yield walk.take(item)


def whole(items: Iterable[Item], session_id: str, keys: SessionKeys | None) -> Iterator[Replayed]:
    """As `replay`, for callers that rewrite or carry away a session: the first damage is raised."""
    for each in replay(items, session_id, keys):
        if each.item.kind == "unfinished":
            continue
        if each.error is not None:
            raise _as_damage(each.error, session_id)
        yield each


def _as_damage(error: SnapshotError, session_id: str) -> SnapshotError:
    if not isinstance(error, SnapshotCorrupted):
        return error
    return SnapshotCorrupted(
        f"session {session_id} is damaged: {error.message}",
        session_id=session_id,
        hint="run asnap check --repair, which keeps everything intact, then try again",
    )


class _Walk:
    def __init__(self, session_id: str, keys: SessionKeys | None) -> None:
        self._session_id, self._keys = session_id, keys
        self._digest = keys.digest if keys else plain_digest
        self._rebuilt: Rebuilt | None = None
        self._last: Header | None = None
        self._gap_is_explained = False

    def take(self, item: Item) -> Replayed:
        if item.kind == "unfinished":
            return Replayed(item, [], None, loads=False)
        snapshots: list[Snapshot] = []
        gap: SnapshotError | None = None
        try:
            snapshots = open_item(item, self._session_id, self._keys)
            for header, lines in snapshots:
                gap = self._follow(header, lines) or gap
        except SnapshotError as error:
            self._rebuilt, self._gap_is_explained = None, True
            return Replayed(item, snapshots, error, loads=False)
        self._gap_is_explained = False
        return Replayed(item, snapshots, gap, loads=True)

    def _follow(self, header: Header, lines: list[bytes]) -> SnapshotError | None:
        """Apply one snapshot; returns an unexplained gap before it. A gap does not affect intact snapshots."""
        after, root = (self._last.hi, self._last.root) if self._last else (0, "")
        gap = _Chain(f"it does not follow snapshot {after}", session_id=self._session_id)
        if header.full:
            self._rebuilt = Rebuilt(self._digest)
        elif self._rebuilt is None:
            raise _Chain("a frame it builds on is damaged or missing", session_id=self._session_id)
        elif (header.lo, header.prev) != (after + 1, root):
            raise gap
        if header.hi <= after:
            raise gap
        if self._rebuilt.take(header, lines) != header.root:
            raise SnapshotCorrupted(
                "the content does not have the digest it was saved with", session_id=self._session_id
            )
        explained, self._gap_is_explained, self._last = self._gap_is_explained, False, header
        return None if header.lo == after + 1 or explained else gap
