"""Drop snapshots, and restore them: a copy of the session goes to the trash first.

A restore keeps the snapshots saved since the drop, and numbers are never reused: the restored snapshots come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from snapshot_plugin.codec.document import StoredDocument
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.pack import Change, packed
from snapshot_plugin.errors import Conflict, InvalidInput
from snapshot_plugin.store import rewrite
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.log import Frame, FrameLog, Segment, frames_in, session_frames
from snapshot_plugin.store.trash import copy_to_trash
from snapshot_plugin.store.walk import whole

__all__ = ["drop", "undrop"]


def drop(
    log: FrameLog, session_id: str, keys: SessionKeys | None, gone: frozenset[int], *, token: str, now: datetime
) -> Trashed:
    """Drop the snapshots numbered *gone*; called inside `FrameLog.exclusively`.

    Raises:
        InvalidInput: the newest one is among them, or a number that does not exist.
        SnapshotCorrupted: the session is damaged. Nothing was changed.
    """
    numbers = list(_Changes(session_frames(log, session_id), session_id, keys).headers)
    if not gone or not gone <= set(numbers[:-1]):
        raise InvalidInput(
            f"snapshots {sorted(gone)} of session {session_id} cannot be dropped: it has {numbers}, "
            "and the newest one stays",
            session_id=session_id,
            hint="read its history again",
        )
    kept = copy_to_trash(log, session_id, token=token, now=now)
    rewrite.forget(log, session_id, keys, set(gone))
    return kept


def undrop(
    log: FrameLog, session_id: str, keys: SessionKeys | None, copy: Sequence[Segment], *, is_later: bool = False
) -> tuple[int, ...]:
    """Restore the snapshots of *copy* that the session no longer has; called inside `FrameLog.exclusively`.

    Returns the restored numbers. With *is_later*, the copy may have snapshots after the newest stored one.

    Raises:
        Conflict: the stored session is not the one that was copied.
        SnapshotCorrupted: either of them is damaged. Nothing was changed.
    """
    old = _Changes(frames_in(copy), session_id, keys)
    new = _Changes(session_frames(log, session_id), session_id, keys)
    is_behind = max(new.headers) < max(old.headers) and not is_later  # numbers only grow: it was begun again
    shared = old.headers.keys() & new.headers.keys()
    if is_behind or any(new.headers[hi].root != old.headers[hi].root for hi in shared):
        raise Conflict(
            f"session {session_id} is not the one whose snapshots were dropped",
            session_id=session_id,
            hint="forget the existing session, then try again",
        )
    back = sorted(old.headers.keys() - new.headers.keys())
    if back:
        highest = max([*old.headers, *new.headers])
        log.replace(session_id, log.segments(session_id), _merged(old, new, keys), highest)
    return tuple(back)


class _Changes:
    """The changes of a session by their numbers, applied one after the other."""

    def __init__(self, frames: Sequence[Frame], session_id: str, keys: SessionKeys | None) -> None:
        self.headers: dict[int, Header] = {}
        self.document = StoredDocument()
        self._lines: dict[int, list[bytes]] = {}
        for each in whole(frames, session_id, keys):
            for header, lines in each.changes:
                self.headers[header.hi], self._lines[header.hi] = header, lines

    def advance(self, hi: int) -> None:
        """Advance to the next snapshot."""
        self.document.take(self.headers[hi], self._lines[hi])

    def unchanged(self, hi: int, last: Header | None) -> Change | None:
        """The change as it is, if it can follow *last*."""
        header = self.headers.get(hi)
        # Then *last* is also its predecessor in the copy: a number has the same root in both logs.
        follows = header and header.lo == (last.hi if last else 0) + 1
        return (header, self._lines[hi]) if header and follows else None


def _merged(old: _Changes, new: _Changes, keys: SessionKeys | None) -> list[bytes]:
    """Every snapshot of both logs, in order. Snapshots whose predecessor changed are rewritten in full."""
    merged: list[Change] = []
    last: Header | None = None
    for hi in sorted(old.headers.keys() | new.headers.keys()):
        sides = [side for side in (new, old) if hi in side.headers]
        for side in sides:
            side.advance(hi)
        header, document = sides[0].headers[hi], sides[0].document
        as_it_is = new.unchanged(hi, last) or old.unchanged(hi, last)
        merged.append(as_it_is or rewrite.merged_change(header, document, None, last))
        last = header
    return packed(merged, keys)
