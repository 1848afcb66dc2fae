"""Drop snapshots, and bring them back: a copy of the session as it was goes to the trash first.

What was saved since the drop stays when they come back, and numbers are never used twice: the past is put in front
of the present.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from snapshot_plugin.codec.document import Document
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.pack import Snapshot, open_snapshots, packed
from snapshot_plugin.errors import Conflict, InvalidInput, SnapshotCorrupted
from snapshot_plugin.store import rewrite
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.log import FrameLog, Segment, pieces_of
from snapshot_plugin.store.reader import check_order, session_items

__all__ = ["drop", "undrop"]


def drop(
    log: FrameLog, session_id: str, keys: SessionKeys | None, gone: frozenset[int], *, token: str, now: datetime
) -> Trashed:
    """Drop the snapshots numbered *gone*; called inside `FrameLog.exclusively`.

    Raises:
        InvalidInput: the newest one is among them, or one that is not there.
        SnapshotCorrupted: the session is damaged. Nothing was changed.
    """
    items = [item for item in session_items(log, session_id) if item.kind != "unfinished"]
    if any(item.kind != "frame" for item in items):
        raise _damaged(session_id)
    numbers = [header.hi for header, _ in _snapshots([item.data for item in items], session_id, keys)]
    if not gone or not gone <= set(numbers[:-1]):
        raise InvalidInput(
            f"snapshots {sorted(gone)} of session {session_id} cannot be dropped: it has {numbers}, "
            "and the newest one stays",
            session_id=session_id,
            hint="look at its history again",
        )
    kept = log.keep(session_id, token=token, now=now)
    rewrite.forget(log, session_id, keys, set(gone))
    return kept


def undrop(log: FrameLog, session_id: str, keys: SessionKeys | None, copy: Sequence[Segment]) -> tuple[int, ...]:
    """Bring back what *copy* holds and the session has no more; called inside `FrameLog.exclusively`.

    Returns the numbers that came back.

    Raises:
        Conflict: the session that is there is not the one that was copied.
        SnapshotCorrupted: either of them is damaged. Nothing was changed.
    """
    past = [frame for segment, after in _neighbours(copy) for frame in _frames(segment, after, session_id)]
    items = [item for item in session_items(log, session_id) if item.kind != "unfinished"]
    if any(item.kind != "frame" for item in items):
        raise _damaged(session_id)
    old, new = _Life(past, session_id, keys), _Life([item.data for item in items], session_id, keys)
    if any(new.headers[hi].root != old.headers[hi].root for hi in old.headers.keys() & new.headers.keys()):
        raise Conflict(
            f"session {session_id} is not the one whose snapshots were dropped",
            session_id=session_id,
            hint="forget the one that is there, then try again",
        )
    back = sorted(old.headers.keys() - new.headers.keys())
    if back:
        highest = max([*old.headers, *new.headers])
        log.replace(session_id, log.segments(session_id), _merged(old, new, keys), highest)
    return tuple(back)


class _Life:
    """The snapshots of a session, rebuilt one after the other."""

    def __init__(self, frames: Sequence[bytes], session_id: str, keys: SessionKeys | None) -> None:
        self.headers: dict[int, Header] = {}
        self.document = Document()
        self._lines: dict[int, list[bytes]] = {}
        last = None
        for header, lines in _snapshots(frames, session_id, keys):
            check_order(header, last)
            self.headers[header.hi], self._lines[header.hi] = header, lines
            last = header

    def live(self, hi: int) -> None:
        """Go on to the next snapshot."""
        self.document.take(self.headers[hi], self._lines[hi])

    def snapshot(self, hi: int, last: Header | None) -> Snapshot | None:
        """The snapshot as it is, if that can follow *last*."""
        header = self.headers.get(hi)
        # The snapshot before it in its own life is then *last*: one number has one root in both lives.
        follows = header and header.lo == (last.hi if last else 0) + 1
        return (header, self._lines[hi]) if header and follows else None


def _merged(old: _Life, new: _Life, keys: SessionKeys | None) -> list[bytes]:
    """Every snapshot of both lives, in order; one that follows another than before is written anew, in full."""
    merged: list[Snapshot] = []
    last: Header | None = None
    for hi in sorted(old.headers.keys() | new.headers.keys()):
        lives = [life for life in (new, old) if hi in life.headers]
        for life in lives:
            life.live(hi)
        header, document = lives[0].headers[hi], lives[0].document
        as_it_is = new.snapshot(hi, last) or old.snapshot(hi, last)
        merged.append(as_it_is or rewrite.standing_for(header, document, None, last))
        last = header
    return packed(merged, keys)


def _snapshots(frames: Sequence[bytes], session_id: str, keys: SessionKeys | None) -> list[Snapshot]:
    return [each for frame in frames for each in open_snapshots(frame, session_id=session_id, keys=keys)]


def _neighbours(segments: Sequence[Segment]) -> list[tuple[Segment, Segment | None]]:
    return list(zip(segments, [*segments[1:], None], strict=True))


def _frames(segment: Segment, following: Segment | None, session_id: str) -> list[bytes]:
    data = segment.read()
    pieces = [piece for piece in pieces_of(segment, data, following) if piece.kind != "unfinished"]
    if any(piece.kind != "frame" for piece in pieces):
        raise _damaged(session_id)
    return [data[piece.start : piece.end] for piece in pieces]


def _damaged(session_id: str) -> SnapshotCorrupted:
    return SnapshotCorrupted(
        f"session {session_id} is damaged", session_id=session_id, hint="check(repair=True) first"
    )
