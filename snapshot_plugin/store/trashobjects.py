"""Deleted sessions in a bucket: objects stay in place, and the ledger marks them as trash.

The trash also holds copies made before snapshots were dropped, in the same form.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

from snapshot_plugin.errors import Conflict, Damaged, InvalidSnapshotVersion, SnapshotNotFound
from snapshot_plugin.model.ids import session_id_of
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.ledger import Gone, Ledger
from snapshot_plugin.store.ledgers import Ledgers, Seen
from snapshot_plugin.store.log import Segment

__all__ = ["TrashObjects"]


class TrashObjects(Ledgers):
    """The part of `FrameLog` that discards, and brings back."""

    def discard(self, session_id: str, *, token: str, now: datetime) -> Trashed:
        """See `FrameLog`."""
        return self._trashed(session_id, token, now, stays=False)

    def keep(self, session_id: str, *, token: str, now: datetime) -> Trashed:
        """See `FrameLog`. The copy and the session share their objects."""
        return self._trashed(session_id, token, now, stays=True)

    def _trashed(self, session_id: str, token: str, now: datetime, *, stays: bool) -> Trashed:
        def edit(seen: Seen) -> Ledger:
            parts = tuple(self._moved_out(session_id, seen.ledger.parts))
            if not parts:
                raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
            trash = (*seen.ledger.trash, Gone(token, now, parts))
            return seen.ledger._replace(parts=parts if stays else (), trash=trash)

        return _entry(session_id, self._change(session_id, edit).trash[-1])

    def trash(self) -> list[Trashed]:
        """See `FrameLog`."""
        found = [_entry(session_id, gone) for session_id, seen in self._with_trash() for gone in seen.ledger.trash]
        return sorted(found, key=lambda entry: (entry.deleted_at, entry.token), reverse=True)

    def _find(self, token: str) -> tuple[str, Gone]:
        for session_id, seen in self._with_trash():
            for gone in seen.ledger.trash:
                if gone.token == token:
                    return session_id, gone
        raise _nothing(token)

    def kept(self, token: str) -> list[Segment]:
        """See `FrameLog`."""
        session_id, gone = self._find(token)
        return self.as_segments(session_id, gone.parts)

    def undelete(self, token: str) -> str:
        """See `FrameLog`."""
        session_id, _ = self._find(token)

        def edit(seen: Seen) -> Ledger:
            gone = next((each for each in seen.ledger.trash if each.token == token), None)
            if gone is None:
                raise _nothing(token)
            if seen.ledger.parts:
                raise Conflict(
                    f"there is a new session {session_id}", session_id=session_id, hint="delete it first"
                )
            return seen.ledger._replace(parts=gone.parts, trash=_without(seen.ledger, {token}))

        self._change(session_id, edit)
        return session_id

    def purge(self, *, older_than: timedelta, now: datetime, only: str | None = None) -> list[Trashed]:
        """See `FrameLog`.

        Unreferenced objects are removed as well. A writer that made one and has not referenced it yet has read an
        older ledger than the one written here, so its write is refused.
        """
        made: dict[str, set[str]] = {}
        for name in self._bucket.names("frames"):
            directory, _, file = name.rpartition("/")
            if session_id := session_id_of(directory):
                made.setdefault(session_id, set()).add(file)
        out: list[Trashed] = []
        present = {session_id: seen.ledger for session_id, seen in self._everything()}
        for session_id in sorted(present.keys() | made.keys()):
            with contextlib.suppress(Damaged, InvalidSnapshotVersion):  # references unknown: keep all
                ledger = present[session_id] if session_id in present else self._fetch(session_id).ledger
                old = {
                    each.token
                    for each in ledger.trash
                    if now - each.at >= older_than and only in (None, each.token)
                }
                if old or made.get(session_id, set()) - ledger.objects():
                    out += self._purged(session_id, old, made.get(session_id, set()))
        return sorted(out, key=lambda entry: (entry.deleted_at, entry.token), reverse=True)

    def _purged(self, session_id: str, tokens: set[str], made: set[str]) -> list[Trashed]:
        gone: list[Gone] = []

        def edit(seen: Seen) -> Ledger:
            gone[:] = [each for each in seen.ledger.trash if each.token in tokens]
            return seen.ledger._replace(trash=_without(seen.ledger, tokens))

        with self.exclusively(session_id):
            ledger = self._change(session_id, edit)
        self._remove(session_id, made - ledger.objects())
        return [_entry(session_id, each) for each in gone]


def _without(ledger: Ledger, tokens: set[str]) -> tuple[Gone, ...]:
    return tuple(gone for gone in ledger.trash if gone.token not in tokens)


def _entry(session_id: str, gone: Gone) -> Trashed:
    size = sum(part.size for part in gone.parts)
    return Trashed(session_id=session_id, token=gone.token, deleted_at=gone.at, size_bytes=size)


def _nothing(token: str) -> SnapshotNotFound:
    return SnapshotNotFound(f"nothing in the trash has the token {token}", hint="it was purged, or restored before")
