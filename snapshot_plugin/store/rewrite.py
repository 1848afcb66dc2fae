"""Write a session's past again: forget snapshots, compress better, seal with another key. Roots never change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from snapshot_plugin.codec.document import Document, removed
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header, encode_frame, open_frame
from snapshot_plugin.errors import Damaged, SnapshotCorrupted
from snapshot_plugin.model.splice import splice_between
from snapshot_plugin.store.log import FrameLog, Segment, pieces_of
from snapshot_plugin.store.reader import Item, check_order, session_items

__all__ = ["forget", "joined", "recompress", "standing_for"]


def forget(log: FrameLog, session_id: str, keys: SessionKeys | None, gone: set[int]) -> None:
    """Merge every forgotten snapshot into the next one that stays. Segments without a change are left alone.

    Raises:
        SnapshotCorrupted: the session is damaged; repair it first. Nothing was changed.
    """
    items = [item for item in session_items(log, session_id) if item.kind != "unfinished"]
    if any(item.kind == "damage" for item in items):
        raise SnapshotCorrupted(
            f"session {session_id} is damaged", session_id=session_id, hint="check(repair=True) first"
        )
    kept = list(_merged(items, session_id, keys, gone))
    dropped = {item.segment.name for item in items if item.header and item.header.hi in gone}
    rewritten = {item.segment.name for item, frame in kept if frame is not item.data}
    segments = log.segments(session_id)
    touched = [index for index, segment in enumerate(segments) if segment.name in dropped | rewritten]
    if not touched:  # somebody else forgot them meanwhile
        return
    span = segments[touched[0] : touched[-1] + 1]
    names = {segment.name for segment in span}
    frames = [(item, frame) for item, frame in kept if item.segment.name in names]
    highest = max(_number(item) for item, _ in frames)
    log.replace(session_id, span, [frame for _, frame in frames], highest)


def _number(item: Item) -> int:
    return item.header.hi if item.header else 0


def _merged(
    items: Sequence[Item], session_id: str, keys: SessionKeys | None, gone: set[int]
) -> Iterator[tuple[Item, bytes]]:
    """Each snapshot that stays, with its frame: as it was, or standing for those before it too."""
    document = Document()
    base: Document | None = None
    last: Header | None = None
    before: Header | None = None
    waiting = False
    for item in items:
        header, payload = open_frame(item.data, session_id=session_id, keys=keys)
        check_order(header, before)
        before = header
        if not waiting and header.hi in gone:
            base = document.copy() if last else None
        document.apply(header, payload)
        if header.hi in gone:
            waiting = True
            continue
        frame = standing_for(header, document, base, last, keys) if waiting else item.data
        yield item, frame
        last, waiting = header, False


def standing_for(
    header: Header, document: Document, base: Document | None, last: Header | None, keys: SessionKeys | None
) -> bytes:
    """One frame that leads from *base* (nothing, if None) straight to *document*."""
    full = header.full or base is None or base.version != header.v
    before = Document() if base is None or full else base
    splice = splice_between(before.messages, document.messages)
    sections = [line for key, line in document.sections.items() if before.sections.get(key) != line]
    gone = [removed(key) for key in before.sections if key not in document.sections]
    messages = document.messages[splice.at : splice.at + splice.insert]
    merged = replace(
        header, lo=last.hi + 1 if last else 1, prev=last.root if last else "", full=full,
        at=splice.at, delete=splice.delete, insert=splice.insert,
    )  # fmt: skip
    payload = b"\n".join([document.meta, *sections, *gone, *messages, b""])
    return encode_frame(merged, payload, keys, effort="best")


def joined(frames: Sequence[bytes], session_id: str, keys: SessionKeys | None) -> list[bytes]:
    """The same snapshots with the numbers between them closed: what is missing counts as forgotten."""
    out, last = [], 0
    for frame in frames:
        header, payload = open_frame(frame, session_id=session_id, keys=keys)
        if header.lo != last + 1:
            frame = encode_frame(replace(header, lo=last + 1), payload, keys)  # noqa: PLW2901 — the same snapshot
        out.append(frame)
        last = header.hi
    return out


def recompress(log: FrameLog, session_id: str, keys: SessionKeys | None, *, newest_too: bool) -> None:
    """Encode finished segments again, smaller. With *newest_too* every segment, sealed with the primary key.

    A segment with damage in it is left as it is. The lock is taken only to put a finished file in place, so
    whoever saves meanwhile does not wait for the compression; a segment that grew meanwhile is done over.
    """
    segments = log.segments(session_id)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is None and not newest_too:
            return
        if newest_too or not segment.rewritten:
            while not _again(log, session_id, keys, segment, following):
                pass


def _again(
    log: FrameLog, session_id: str, keys: SessionKeys | None, segment: Segment, following: Segment | None
) -> bool:
    """Write one segment again; False if it changed meanwhile."""
    try:
        data = segment.read()
    except FileNotFoundError:  # somebody else has written it again
        return True
    pieces = [piece for piece in pieces_of(segment, data, following) if piece.kind != "unfinished"]
    if not pieces or any(piece.kind != "frame" for piece in pieces):
        return True
    try:
        opened = [open_frame(data[piece.start : piece.end], session_id=session_id, keys=keys) for piece in pieces]
    except Damaged:
        return True
    frames = [encode_frame(header, payload, keys, effort="best") for header, payload in opened]
    with log.exclusively(session_id):
        now = [each.name for each in log.segments(session_id)]
        if segment.name not in now or (following and following.name not in now):
            return True  # somebody else rewrote it
        if segment.read() != data:
            return False
        log.replace(session_id, [segment], frames, max(segment.last, opened[-1][0].hi))
    return True
