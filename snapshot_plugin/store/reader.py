"""Find a snapshot in a log: the last full frame at or before it, and every frame after that up to it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from snapshot_plugin.codec.document import StoredDocument
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.pack import Snapshot, payload_size
from snapshot_plugin.errors import Damaged, SnapshotCorrupted, SnapshotNotFound, SnapshotTampered
from snapshot_plugin.store.base import Finding
from snapshot_plugin.store.log import FrameReader, Segment, Tip, TipSeeker, pieces_of, undisturbed
from snapshot_plugin.store.replay import Item, check_order, item_of, open_item

__all__ = ["FoundSnapshot", "error_of", "find", "warn_of"]

log = logging.getLogger("snapshot_plugin.store")

_MUCH = 256 << 10
"""Packs of more bytes than this are decompressed by several threads."""
_THREADS = min(4, os.cpu_count() or 1)
_ERRORS: dict[str, type[Damaged]] = {error.code: error for error in (SnapshotCorrupted, SnapshotTampered)}


class FoundSnapshot(NamedTuple):
    """A rebuilt snapshot, and the unusable frames after it."""

    document: StoredDocument
    header: Header
    size_bytes: int
    written: int
    skipped: tuple[Finding, ...]
    tip: Tip


def find(
    log: FrameReader, session_id: str, keys: SessionKeys | None, *, at: int | None = None, ahead: bool = True
) -> FoundSnapshot:
    """The newest intact snapshot, or the one numbered *at*. Segments are read newest first, as needed.

    With *ahead*, messages are validated while other threads decompress more.

    Raises:
        SnapshotNotFound: there is no such session, or no such number.
        SnapshotCorrupted, SnapshotTampered: the requested snapshot cannot be read.
        WrongKey: a frame is sealed with a key this writer does not have (yet): not damage, so no fallback.
        InvalidSnapshotVersion: it was written by a newer release.
    """
    return undisturbed(
        session_id, lambda: _Search(log.segments(session_id), session_id, keys, at, ahead=ahead).run()
    )


class _Search:
    def __init__(
        self, segments: list[Segment], session_id: str, keys: SessionKeys | None, at: int | None, *, ahead: bool
    ) -> None:
        self._ahead = ahead
        self._segments, self._session_id, self._keys, self._at = segments, session_id, keys, at
        self._items: list[Item] = []
        self._findings: list[Finding] = []
        self._tip = TipSeeker()

    def run(self) -> FoundSnapshot:
        following = None
        for segment in reversed(self._segments):
            if self._at is not None and segment.first > self._at:
                following = segment
                continue
            data = segment.read()
            pieces = pieces_of(segment, data, following, until=self._at)
            self._tip.see(segment, pieces)
            items = [item_of(piece, data, segment) for piece in pieces if piece.kind != "unfinished"]
            self._items = items + self._items
            for index in reversed(range(len(items))):
                if index and self._is_put_back(items[index], items[index - 1]):
                    continue
                if self._begins_here(items[index]) and (found := self._follow(index)):
                    return found
                if self._at is not None and self._is_past(items[index]):
                    self._fail()
            following = segment
        return self._fail()

    def _begins_here(self, item: Item) -> bool:
        if not (item.header and item.header.full):
            return False
        return self._at is None or (item.header.lo if item.header.pack else item.header.hi) <= self._at

    def _is_put_back(self, item: Item, before: Item) -> bool:
        """Whether an old full frame was copied after a newer one, where it would be read as the newest."""
        if not (item.header and item.header.full and before.header and before.header.hi >= item.header.hi):
            return False
        if not self._noted(before, self._open(before)):
            return False
        self._note(item, SnapshotCorrupted(f"snapshot {item.header.hi} stands behind snapshot {before.header.hi}"))
        return True

    def _is_past(self, item: Item) -> bool:
        return bool(item.header and item.header.full and self._at is not None and item.header.lo <= self._at)

    def _follow(self, start: int) -> FoundSnapshot | None:
        """Build on from the full frame at *start* until the end, the wanted number, or damage."""
        document, last, size, written = StoredDocument(ahead=self._ahead), None, 0, 0
        for item, snapshots in self._opened(self._items[start:]):
            size += len(item.data)
            whole = bool(snapshots)
            for header, lines in snapshots:
                whole = whole and self._takes(document, item, header, lines, last)
                if not whole:
                    break
                last, written = header, written + payload_size(lines)
                if header.hi == self._at:
                    break
            if not whole or (last and last.hi == self._at):
                break
        if last is None or (self._at is not None and last.hi != self._at):
            return None
        tip = self._tip.tip or Tip(last.hi, last.id)
        return FoundSnapshot(document, last, size, written, tuple(self._findings), tip)

    def _takes(
        self, document: StoredDocument, item: Item, header: Header, lines: list[bytes], last: Header | None
    ) -> bool:
        try:
            check_order(header, last)
            document.take(header, lines)
        except SnapshotCorrupted as error:
            self._note(item, error)
            return False
        return True

    def _opened(self, items: Sequence[Item]) -> Iterator[tuple[Item, list[Snapshot]]]:
        """Each item with its snapshots; none where it is damaged. Many packs are decompressed by several threads.

        A frame that is not a pack is hardly compressed: handing it to a thread costs more than opening it.
        """
        packs = {number: item for number, item in enumerate(items) if item.header and item.header.pack}
        if sum(len(item.data) for item in packs.values()) < _MUCH:
            yield from ((item, self._noted(item, self._open(item))) for item in items)
            return
        threads = ThreadPoolExecutor(_THREADS, "asnap-read")
        try:
            underway = {number: threads.submit(self._open, item) for number, item in packs.items()}
            for number, item in enumerate(items):
                pack = underway.pop(number, None)
                yield item, self._noted(item, pack.result() if pack else self._open(item))
        finally:
            threads.shutdown(cancel_futures=True)

    def _noted(self, item: Item, opened: list[Snapshot] | Damaged) -> list[Snapshot]:
        if isinstance(opened, list):
            return opened
        self._note(item, opened)
        return []

    def _open(self, item: Item) -> list[Snapshot] | Damaged:
        """The snapshots, or the error.

        It is returned, because an error raised from a future keeps the frame in memory.
        """
        try:
            return open_item(item, self._session_id, self._keys)
        except Damaged as error:
            return error.with_traceback(None)

    def _note(self, item: Item, error: Damaged) -> None:
        finding = item.finding(self._session_id, error.code, error.message)
        if (finding.file, finding.offset) not in {(known.file, known.offset) for known in self._findings}:
            self._findings.append(finding)

    def _fail(self) -> FoundSnapshot:
        where = f"session {self._session_id}" + (f", snapshot {self._at}" if self._at is not None else "")
        if not self._items and (self._at is None or self._at > 0):
            raise SnapshotNotFound(f"there is no session {self._session_id}", session_id=self._session_id)
        is_whole = all(item.kind == "frame" for item in self._items)
        if self._at is not None and is_whole and not self._may_hold(self._at):
            raise SnapshotNotFound(f"{where} does not exist or was forgotten", session_id=self._session_id)
        if self._findings:
            raise error_of(self._findings[0], where)
        raise SnapshotCorrupted(f"{where} cannot be read: frames it needs are damaged", session_id=self._session_id)

    def _may_hold(self, seq: int) -> bool:
        """Whether a frame has that number, or a pack that cannot be opened may have it inside."""
        headers = [item.header for item in self._items if item.header]
        return any(
            each.hi == seq or (each.pack and each.lo <= seq <= each.hi and bool(self._findings)) for each in headers
        )


def warn_of(found: FoundSnapshot, session_id: str) -> None:
    """Log the damage that was skipped to find this snapshot."""
    for finding in found.skipped:
        log.warning("session %s: skipped damage in %s: %s", session_id, finding.file, finding.detail)


def error_of(finding: Finding, what: str) -> Damaged:
    """The error that says why *what* cannot be read."""
    return _ERRORS[finding.kind](f"{what} cannot be read: {finding.detail}", session_id=finding.session_id)
