"""Areas and small files in a bucket: the trash is in the ledgers, quarantine and small files are objects."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from snapshot_plugin.errors import Damaged, InvalidSnapshotVersion, SnapshotNotFound
from snapshot_plugin.model.ids import dirname_of, session_id_of, time_of
from snapshot_plugin.store.bucket import ObjectMoved, many_at_once
from snapshot_plugin.store.ledger import Gone, Ledger
from snapshot_plugin.store.ledgers import Ledgers, Seen
from snapshot_plugin.store.log import Area, FileChanged, FrameLog, Segment, SmallFile
from snapshot_plugin.store.marker import MARKER
from snapshot_plugin.store.trash import area_of, no_such_entry, taken

__all__ = ["AreaObjects"]

_SUFFIX = ".snap.gz"


class AreaObjects(Ledgers, FrameLog):
    """The part of `FrameLog` that copies, moves, lists and removes areas, and keeps small files."""

    def areas(self, under: str, session_id: str | None = None) -> list[Area]:
        """See `FrameLog`."""
        if under != "trash":
            return self._quarantined(session_id)
        ledgers = [(session_id, self._fetch(session_id))] if session_id else self._with_trash()
        return [
            Area(owner, area_of(gone.token), sum(part.size for part in gone.parts))
            for owner, seen in ledgers
            for gone in seen.ledger.trash
        ]

    def area_segments(self, session_id: str, area: str) -> list[Segment]:
        """The segments of an area; see `FrameLog.segments`."""
        kind, _, name = area.partition("/")
        if kind == "trash":
            trash = self._fetch(session_id).ledger.trash
            return [
                segment
                for gone in trash
                if gone.token == name
                for segment in self.as_segments(session_id, gone.parts)
            ]
        path, first = _quarantine(session_id, name), int(name.partition("-")[0])
        return [Segment(area, first, 1 << 62, rewritten=True, read=partial(self._object, path))]

    def copy(self, session_id: str, segments: Sequence[Segment], area: str) -> str:
        """See `FrameLog`. A copy in the trash shares its objects with the session."""
        kind, _, name = area.partition("/")
        if kind == "trash":
            self._to_trash(session_id, name, stays=True)
        else:
            for segment in segments:
                self._put_new(_quarantine(session_id, name), segment.read())
        return area

    def move(self, session_id: str, source: str, target: str) -> None:
        """See `FrameLog`."""
        token = (source or target).partition("/")[2]
        if target:
            self._to_trash(session_id, token, stays=False)
            return

        def edit(seen: Seen) -> Ledger:
            gone = next((each for each in seen.ledger.trash if each.token == token), None)
            if gone is None:
                raise no_such_entry(token)
            if seen.ledger.parts:
                raise taken(session_id)
            return seen.ledger._replace(parts=gone.parts, trash=_without(seen.ledger, {token}))

        self._change(session_id, edit)

    def _to_trash(self, session_id: str, token: str, *, stays: bool) -> None:
        def edit(seen: Seen) -> Ledger:
            parts = tuple(self._moved_out(session_id, seen.ledger.parts))
            if not parts:
                raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
            # Earlier releases show this time; it is the token's.
            trash = (*seen.ledger.trash, Gone(token, time_of(token) or datetime.now(UTC), parts))
            return seen.ledger._replace(parts=parts if stays else (), trash=trash)

        self._change(session_id, edit)

    def remove(self, areas: Sequence[Area]) -> list[Area]:
        """See `FrameLog`."""
        tokens: dict[str, set[str]] = {}
        for area in areas:
            tokens.setdefault(area.session_id, set()).add(area.name.partition("/")[2])
        gone: set[tuple[str, str]] = set()
        for session_id, wanted in tokens.items():
            gone |= {(session_id, area_of(token)) for token in self._removed(session_id, wanted)}
        return [area for area in areas if area[:2] in gone]

    def _removed(self, session_id: str, tokens: set[str]) -> set[str]:
        found: set[str] = set()

        def edit(seen: Seen) -> Ledger:
            nonlocal found
            found = {each.token for each in seen.ledger.trash} & tokens
            return seen.ledger._replace(trash=_without(seen.ledger, tokens))

        with self.exclusively(session_id):
            self._change(session_id, edit)
        return found

    def tidy(self, *, older_than: timedelta, now: datetime) -> None:
        """Remove objects that no ledger names.

        A writer that made one and has not referenced it yet has read an older ledger than the one written here, so
        its write is refused.
        """
        _ = older_than, now
        made: dict[str, set[str]] = {}
        for name in self._bucket.names("frames"):
            directory, _, file = name.rpartition("/")
            if session_id := session_id_of(directory):
                made.setdefault(session_id, set()).add(file)

        def unused(session_id: str) -> set[str]:
            with contextlib.suppress(Damaged, InvalidSnapshotVersion):  # references unknown: keep all
                return made[session_id] - self._fetch(session_id).ledger.objects()
            return set()

        for session_id, left in zip(made, many_at_once(unused, list(made)), strict=True):
            if left:
                with self.exclusively(session_id):
                    ledger = self._change(session_id, lambda seen: seen.ledger)
                self._remove(session_id, made[session_id] - ledger.objects())

    def get(self, name: str) -> SmallFile | None:
        """See `FrameLog`."""
        found = self._bucket.get(name)
        return SmallFile(found.data, found.tag) if found else None

    def put(self, name: str, data: bytes, tag: str | None) -> str:
        """See `FrameLog`. Before a store is made, the service shows that it keeps writers apart."""
        if name == MARKER:
            self.race()
        try:
            return self._bucket.put(name, data, tag=tag)
        except ObjectMoved as error:
            raise FileChanged(name) from error

    def names(self, under: str) -> list[str]:
        """See `FrameLog`."""
        return self._bucket.names(under)

    def _quarantined(self, session_id: str | None) -> list[Area]:
        under = f"quarantine/{dirname_of(session_id)}" if session_id else "quarantine"
        out = []
        for name in self._bucket.names(under):
            directory, _, file = f"{under}/{name}".removeprefix("quarantine/").partition("/")
            if owner := session_id_of(directory):
                out.append(Area(owner, f"quarantine/{file.removesuffix(_SUFFIX)}"))
        return out

    def _object(self, path: str) -> bytes:
        found = self._bucket.get(path)
        if found is None:
            raise FileNotFoundError(path)
        return found.data


def _quarantine(session_id: str, name: str) -> str:
    return f"quarantine/{dirname_of(session_id)}/{name}{_SUFFIX}"


def _without(ledger: Ledger, tokens: set[str]) -> tuple[Gone, ...]:
    return tuple(gone for gone in ledger.trash if gone.token not in tokens)
