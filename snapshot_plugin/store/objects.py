"""`FrameLog` in a bucket: for each session one ledger, changed by compare-and-swap, and objects that never change.

::

    sessions/<name>                       the ledger of a session (`store/ledger.py`)
    frames/<name>/<first>-<ulid>.snap.gz  frames that do not fit into the ledger any more, or were rewritten
    quarantine/<name>/…                   only ``check --repair`` puts things here
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence

from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.scan import last_frame, scan
from snapshot_plugin.errors import Conflict, Damaged, InvalidSnapshotVersion, SnapshotCorrupted
from snapshot_plugin.model.ids import dirname_of, session_id_of
from snapshot_plugin.store.area_objects import AreaObjects
from snapshot_plugin.store.bucket import Bucket, many_at_once
from snapshot_plugin.store.ledger import Ledger, LedgerPart
from snapshot_plugin.store.ledger_index import LARGEST_TAIL, Indexed
from snapshot_plugin.store.ledgers import PartReader, Seen, busy, frames_path, unique_name
from snapshot_plugin.store.log import Segment, SessionEntry, Tip, check_end, overtaken, undisturbed

__all__ = ["LEDGER_BYTES", "ObjectLog"]

LEDGER_BYTES = 200 << 10
"""A ledger with more frames moves them to a separate object, because every save rewrites the ledger."""
_FRAMES, _LEAST_BYTES = 16, 8 << 10
"""A ledger has room for about so many frames, or so many bytes: more would be sent again with every save, fewer
would make too many saves two requests."""
_MANY = 32
"""From this many objects on, those of a session are merged into one."""
_SMALL = 32 << 10
"""Rewritten frames up to this size stay in the ledger, so most sessions are one object."""
_FIRST_LOOK = 64 << 10


class _AlreadyThere(Exception):
    """The frame that is to be added is stored already."""


class ObjectLog(AreaObjects):
    """Frames in a bucket. `ObjectStore` makes sure that there is a store before anything is called."""

    def __init__(self, bucket: Bucket, *, ledger_bytes: int = LEDGER_BYTES) -> None:
        super().__init__(bucket)
        self._ledger_bytes = ledger_bytes

    def tip(self, session_id: str) -> Tip | None:
        """See `FrameLog`. A writer first takes its own last version for the present one: the write will tell."""

        def look() -> Tip | None:
            if session_id in self._pins and self._pins[session_id] is None:
                self._pins[session_id] = self._own.get(session_id)
            return self._look(session_id).tip

        return undisturbed(session_id, look)

    def segments(self, session_id: str, area: str = "") -> list[Segment]:
        """See `FrameLog`."""
        return self.area_segments(session_id, area) if area else self._look(session_id).segments

    def tail(self, session_id: str) -> bytes | None:
        """See `FrameLog`."""
        return self._tail(session_id, self._look(session_id).ledger)

    def _tail(self, session_id: str, ledger: Ledger) -> bytes | None:
        part = ledger.parts[-1] if ledger.parts else None
        if part is None:
            return None
        start = max(0, part.size - _FIRST_LOOK)
        end = self._bucket.from_offset(frames_path(session_id, part.object), start) if part.object else part.data
        if end and not last_frame(end) and len(end) < part.size:
            with contextlib.suppress(FileNotFoundError):  # replaced since we looked
                end = self.content(session_id, part)
        piece = last_frame(end) if end else None
        return end[piece.start : piece.end] if end and piece else None

    def sessions(self, only: str | None = None, labels: Mapping[str, str] | None = None) -> list[SessionEntry]:
        """See `FrameLog`. Ledgers that changed since the index was written are read concurrently."""
        _ = labels
        if only is not None:
            entry, _ = self._entry(dirname_of(only))
            return [entry] if entry else []
        tags = self._bucket.tags("sessions")
        rows = self._index.read(tags)
        entries = [_entry_of(name, row) for name, row in rows.items()]
        changed = [name for name in tags if name not in rows]
        for name, (entry, row) in zip(changed, many_at_once(self._entry, changed), strict=True):
            entries.append(entry)
            if row:
                rows[name] = row
        self._index.write(rows, changed=len(changed))
        return [entry for entry in entries if entry]

    def _entry(self, name: str) -> tuple[SessionEntry | None, Indexed | None]:
        """The list entry of a ledger, and its index row."""
        session_id = session_id_of(name)
        if session_id is None:
            return SessionEntry(name, 0, "its name is not that of a session"), None
        try:
            seen = self._fetch(session_id)
        except (Damaged, InvalidSnapshotVersion) as error:
            return SessionEntry(session_id, 0, error.message), None
        size, tail = sum(part.size for part in seen.ledger.parts), self._tail(session_id, seen.ledger)
        row = Indexed(seen.listed_tag, size, bool(seen.ledger.trash), tail or b"")
        is_small = seen.listed_tag and len(row.tail) <= LARGEST_TAIL and (tail or not size)
        return SessionEntry(session_id, size, tail=tail) if size else None, row if is_small else None

    def leftovers(self, session_id: str) -> list[str]:
        """See `FrameLog`: objects that no ledger names. `purge` removes them."""
        names = self._bucket.names(f"frames/{dirname_of(session_id)}")
        return sorted(set(names) - self._fetch(session_id).ledger.objects())

    def append(
        self,
        session_id: str,
        frame: bytes,
        header: Header,
        *,
        after: Tip | None,
        refused: Collection[str] = (),
        fresh: bool = False,
        covered: int = 0,
    ) -> bool:
        """See `FrameLog`. One request, unless the ledger has become too large. True once there are many objects."""
        _ = covered  # a bucket keeps no spools
        expected = self.tip(session_id)
        check_end(session_id, expected, after, refused)
        pieces = 0

        def edit(seen: Seen) -> Ledger:
            nonlocal pieces
            if seen.tip != expected:
                if self._holds(seen, header.id):
                    raise _AlreadyThere
                raise overtaken(session_id, seen.tip)
            parts = list(seen.ledger.parts)
            # Our last save may exist although it was not acknowledged. It is dropped unless others built on it.
            if any(part.rewritten and part.last >= header.hi for part in parts):
                raise overtaken(session_id, seen.tip)
            if not self._has_room(parts, header, len(frame)):
                parts = self._moved_out(session_id, parts)
                pieces = len(_pieces(parts))
            last = parts[-1] if parts else None
            if last and not (fresh or last.object or last.rewritten):
                parts[-1] = last._replace(size=last.size + len(frame), data=last.data + frame)
            else:
                name = unique_name(header.hi)
                parts.append(LedgerPart(name, header.hi, header.hi, False, len(frame), data=frame))
            return seen.ledger._replace(parts=tuple(parts))

        try:
            self._change(session_id, edit)
        except _AlreadyThere:  # our save succeeded without an answer, and others have built on it since
            return False
        self._note(session_id, frame)
        return pieces >= _MANY

    def _note(self, session_id: str, tail: bytes) -> None:
        """Tell the index what this process has just written."""
        seen = self._own.get(session_id)
        if seen and seen.tag and self._bucket.lists_tags and len(tail) <= LARGEST_TAIL:
            size = sum(part.size for part in seen.ledger.parts)
            self._index.note(dirname_of(session_id), Indexed(seen.tag, size, bool(seen.ledger.trash), tail))

    def _has_room(self, parts: Sequence[LedgerPart], header: Header, frame: int) -> bool:
        """Whether the ledger takes one more frame, before they move to a separate object."""
        inline = [part for part in parts if part.data]
        size = sum(len(part.data) for part in inline) + frame
        since = next((part.first for part in inline if not part.rewritten), header.hi)
        is_small = size <= _LEAST_BYTES or header.hi - since < _FRAMES
        return size <= self._ledger_bytes and is_small

    @staticmethod
    def _holds(seen: Seen, frame_id: str) -> bool:
        """Whether a frame with this id exists, judging by headers."""
        return any(
            piece.header and piece.header.id == frame_id
            for segment in seen.segments
            for piece in scan(segment.read())
        )

    def replace(self, session_id: str, old: Sequence[Segment], frames: Sequence[bytes], hi: int) -> None:
        """See `FrameLog`; `SessionLocked` if another writer changed one of *old* meanwhile."""
        before = [segment.read.part for segment in old if isinstance(segment.read, PartReader)]
        names, content = {part.name for part in before}, b"".join(frames)

        def edit(seen: Seen) -> Ledger:
            parts = list(seen.ledger.parts)
            if parts and not before:
                raise Conflict(f"there is a session {session_id}", session_id=session_id)
            if [part for part in parts if part.name in names] != before:
                raise busy(session_id)
            at = parts.index(before[0]) if before else 0
            if any(part.first <= hi for part in parts[at + len(before) :]):  # it does without what we rewrote
                raise busy(session_id)
            parts[at : at + len(before)] = [self._rewritten(session_id, before, content, hi)]
            return seen.ledger._replace(parts=tuple(parts))

        self._change(session_id, edit)

    def _rewritten(self, session_id: str, before: Sequence[LedgerPart], content: bytes, hi: int) -> LedgerPart:
        first = before[0].first if before else 1
        part = LedgerPart(unique_name(first), first, hi, True, len(content), data=content)
        if len(content) <= _SMALL:
            return part
        (part,) = self._moved_out(session_id, [part])
        stored = self._bucket.get(frames_path(session_id, part.object))
        if stored is None or stored.data != content:
            raise SnapshotCorrupted("what was written does not read back", session_id=session_id)
        return part

    def grown(self, size: int) -> list[str]:
        """See `TendedLog`: also those that fell into pieces."""
        return [
            name
            for name, seen in list(self._own.items())
            if _pieces(seen.ledger.parts) or sum(len(part.data) for part in seen.ledger.parts) >= size
        ]

    def doubt(self) -> None:
        """See `TendedLog`: a key that can be read is durable."""

    def close(self) -> None:
        """See `FrameLog`."""
        self._index.flush()


def _entry_of(name: str, row: Indexed) -> SessionEntry | None:
    session_id = session_id_of(name)
    return SessionEntry(session_id, row.size, tail=row.tail) if session_id and row.size else None


def _pieces(parts: Sequence[LedgerPart]) -> list[LedgerPart]:
    """The objects that hold unpacked frames, a few each."""
    return [part for part in parts if part.object and not part.rewritten]
