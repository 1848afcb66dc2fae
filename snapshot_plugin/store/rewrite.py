"""Write a session's past again: forget snapshots, compress better, seal with another key. Roots never change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from snapshot_plugin.codec.document import StoredDocument, removed
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.pack import Change, open_changes, packed
from snapshot_plugin.errors import Damaged
from snapshot_plugin.model.splice import splice_between
from snapshot_plugin.store.log import Frame, FrameLog, Segment, frames_of, session_frames
from snapshot_plugin.store.walk import Replayed, changes_in, whole

__all__ = ["compact_idle", "forget", "joined", "merged_change", "recompress"]

_LARGE = 512 << 10
"""Rewritten files of at least this size are not merged when a session becomes idle."""


def forget(log: FrameLog, session_id: str, keys: SessionKeys | None, gone: set[int]) -> None:
    """Merge every forgotten snapshot into the next kept one. Unchanged segments are left alone.

    Raises:
        SnapshotCorrupted: the session is damaged; repair it first. Nothing was changed.
    """
    kept = list(_merged(whole(session_frames(log, session_id), session_id, keys), keys, gone))
    touched = {old.segment.name for old, frames, _ in kept if frames != [old.data]}
    segments = log.segments(session_id)
    places = [index for index, segment in enumerate(segments) if segment.name in touched]
    if not places:  # another process forgot them meanwhile
        return
    span = segments[places[0] : places[-1] + 1]
    names = {segment.name for segment in span}
    inside = [(frames, hi) for old, frames, hi in kept if old.segment.name in names]
    log.replace(session_id, span, [frame for frames, _ in inside for frame in frames], max(hi for _, hi in inside))


def _merged(
    replayed: Iterable[Replayed], keys: SessionKeys | None, gone: set[int]
) -> Iterator[tuple[Frame, list[bytes], int]]:
    """Each frame with those that replace it, and their highest number.

    Frames without forgotten snapshots are unchanged; a snapshot after forgotten ones covers their numbers.
    """
    document = StoredDocument()
    base: StoredDocument | None = None
    last: Header | None = None
    waiting = False
    for frame, changes, *_ in replayed:
        stays: list[Change] = []
        same = not waiting
        for header, lines in changes:
            if not waiting and header.hi in gone:
                base = document.copy() if last else None
            document.take(header, lines)
            if header.hi in gone:
                waiting, same = True, False
                continue
            stays.append(merged_change(header, document, base, last) if waiting else (header, lines))
            last, waiting = header, False
        yield frame, [frame.data] if same else packed(stays, keys), last.hi if last else 0


def merged_change(
    header: Header, document: StoredDocument, base: StoredDocument | None, last: Header | None
) -> Change:
    """One change that leads from *base* (nothing, if None) straight to *document*."""
    full = header.full or base is None or base.version != header.v
    before = StoredDocument() if base is None or full else base
    splice = splice_between(before.messages, document.messages)
    sections = [line for key, line in document.sections.items() if before.sections.get(key) != line]
    gone = [removed(key) for key in before.sections if key not in document.sections]
    messages = document.messages[splice.at : splice.at + splice.insert]
    merged = header._replace(
        lo=last.hi + 1 if last else 1, prev=last.root if last else "", full=full,
        at=splice.at, delete=splice.delete, insert=splice.insert,
    )  # fmt: skip
    return merged, [document.meta, *sections, *gone, *messages]


def joined(frames: Sequence[bytes], session_id: str, keys: SessionKeys | None) -> list[bytes]:
    """The same snapshots with their number ranges joined: missing ones count as forgotten."""
    out: list[bytes] = []
    last = 0
    for frame in frames:
        (header, lines), *others = open_changes(frame, session_id=session_id, keys=keys)
        if header.lo == last + 1:
            out.append(frame)
        else:
            out += packed([(header._replace(lo=last + 1), lines), *others], keys)
        last = others[-1][0].hi if others else header.hi
    return out


def recompress(log: FrameLog, session_id: str, keys: SessionKeys | None, *, newest_too: bool) -> None:
    """Encode finished segments again, smaller. With *newest_too* every segment, sealed with the primary key.

    A damaged segment is left unchanged. The lock is held only to put a finished file in place, so
    concurrent saves do not wait for the compression; a segment that grew meanwhile is compressed again.
    """
    for name in [segment.name for segment in log.segments(session_id)]:
        while not _renewed(log, session_id, keys, name, newest_too=newest_too):
            pass


def _renewed(log: FrameLog, session_id: str, keys: SessionKeys | None, name: str, *, newest_too: bool) -> bool:
    """Encode one segment again; False if it grew meanwhile."""
    segments = log.segments(session_id)
    for segment, following in zip(segments, [*segments[1:], None], strict=False):
        if segment.name == name and (newest_too or (following and not segment.rewritten)):
            return _again(log, session_id, keys, [segment], following)
    return True


def compact_idle(log: FrameLog, session_id: str, keys: SessionKeys | None, *, newest_too: bool = True) -> None:
    """As `recompress`, for an idle session: merge new segments and smaller ones before them into one file.

    So a session that is opened and closed often stays small and in few files. Without *newest_too*, the newest
    segment is left alone: the session is not idle, and what grows meanwhile would be merged in vain.
    """
    segments = log.segments(session_id)
    following = None if newest_too else segments.pop() if segments else None
    span: list[Segment] = []
    data: list[bytes] = []
    for segment in reversed(segments):
        more, size = segment.read(), sum(map(len, data))
        if segment.rewritten and (len(more) > size or len(more) >= _LARGE):
            break
        span.insert(0, segment)
        data.insert(0, more)
    if span:
        _again(log, session_id, keys, span, following, data=data)


def _again(
    log: FrameLog,
    session_id: str,
    keys: SessionKeys | None,
    span: Sequence[Segment],
    following: Segment | None,
    *,
    data: Sequence[bytes] = (),
) -> bool:
    """Rewrite segments that follow each other as one; False if they changed meanwhile. *data*: as read before."""
    try:
        data = data or [segment.read() for segment in span]
        opened = [
            change
            for segment, content, after in zip(span, data, [*span[1:], following], strict=True)
            for change in _changes(segment, content, after, session_id, keys)
        ]
    except (FileNotFoundError, Damaged):  # another process has rewritten it, or it needs a repair
        return True
    frames = packed(opened, keys)
    if not frames:
        return True
    with log.exclusively(session_id):
        now = _still(log.segments(session_id), span, following)
        if now is None:
            return True
        # Read again: a save may have come between. Segments in a bucket that are equal hold the same bytes.
        if any(
            here != before and here.read() != content for here, before, content in zip(now, span, data, strict=True)
        ):
            return False
        log.replace(session_id, now, frames, max(span[-1].last, opened[-1][0].hi))
    return True


def _still(
    segments: Sequence[Segment], span: Sequence[Segment], following: Segment | None
) -> Sequence[Segment] | None:
    """The current segments of *span*; None if others rewrote them or the following segment changed.

    A new segment after the span may reuse the span's last numbers; a rewritten span would hide it.
    """
    names = [segment.name for segment in (*span, *([following] if following else []))]
    at = next((index for index, segment in enumerate(segments) if segment.name == names[0]), len(segments))
    if [segment.name for segment in segments[at : at + len(names)]] != names:
        return None
    if following is None and len(segments) > at + len(names):
        return None
    return segments[at : at + len(span)]


def _changes(
    segment: Segment, data: bytes, following: Segment | None, session_id: str, keys: SessionKeys | None
) -> Iterator[Change]:
    for frame in frames_of(segment, data, following):
        if frame.kind != "unfinished":
            yield from changes_in(frame, session_id, keys)
