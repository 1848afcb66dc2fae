"""Drop snapshots, and restore them: a copy of the session goes to the trash first.

A restore keeps the snapshots saved since the drop, and numbers are never reused: the restored snapshots come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from snapshot_plugin.codec.document import StoredDocument
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.pack import Snapshot, packed
from snapshot_plugin.errors import Conflict, InvalidInput
from snapshot_plugin.store import rewrite
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.log import FrameLog, Segment
from snapshot_plugin.store.replay import Item, items_in, session_items, whole

__all__ = ["drop", "undrop"]


def drop(
    log: FrameLog, session_id: str, keys: SessionKeys | None, gone: frozenset[int], *, token: str, now: datetime
) -> Trashed:
    """Drop the snapshots numbered *gone*; called inside `FrameLog.exclusively`.

    Raises:
        InvalidInput: the newest one is among them, or a number that does not exist.
        SnapshotCorrupted: the session is damaged. Nothing was changed.
    """
    numbers = list(_Life(session_items(log, session_id), session_id, keys).headers)
    if not gone or not gone <= set(numbers[:-1]):
        raise InvalidInput(
            f"snapshots {sorted(gone)} of session {session_id} cannot be dropped: it has {numbers}, "
            "and the newest one stays",
            session_id=session_id,
            hint="read its history again",
        )
    kept = log.keep(session_id, token=token, now=now)
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
    old = _Life(items_in(copy), session_id, keys)
    new = _Life(session_items(log, session_id), session_id, keys)
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


class _Life:
    """The snapshots of a session, rebuilt one after the other."""

    def __init__(self, items: Sequence[Item], session_id: str, keys: SessionKeys | None) -> None:
        self.headers: dict[int, Header] = {}
        self.document = StoredDocument()
        self._lines: dict[int, list[bytes]] = {}
        for each in whole(items, session_id, keys):
            for header, lines in each.snapshots:
                self.headers[header.hi], self._lines[header.hi] = header, lines

    def live(self, hi: int) -> None:
        """Advance to the next snapshot."""
        self.document.take(self.headers[hi], self._lines[hi])

    def snapshot(self, hi: int, last: Header | None) -> Snapshot | None:
        """The snapshot as it is, if that can follow *last*."""
        header = self.headers.get(hi)
        # Then *last* is also its predecessor in the copy: a number has the same root in both logs.
        follows = header and header.lo == (last.hi if last else 0) + 1
        return (header, self._lines[hi]) if header and follows else None


def _merged(old: _Life, new: _Life, keys: SessionKeys | None) -> list[bytes]:
    """Every snapshot of both logs, in order. Snapshots whose predecessor changed are rewritten in full."""
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
