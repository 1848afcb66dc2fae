"""The interface between the store and what holds its frames: files, memory, objects or rows.

A log keeps opaque frames of many sessions in **segments**, each a run of frames one behind the other. It is
synchronous: the store calls it from worker threads, one hop for a whole save. It never looks into a payload.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.scan import scan
from snapshot_plugin.errors import Conflict, StoreUnavailable

if TYPE_CHECKING:
    from snapshot_plugin.store.base import Finding

__all__ = [
    "Area",
    "FileChanged",
    "Frame",
    "FrameLog",
    "FrameReader",
    "Segment",
    "SessionEntry",
    "SmallFile",
    "Tip",
    "TipSeeker",
    "check_end",
    "file_of",
    "frames_in",
    "frames_of",
    "overtaken",
    "session_frames",
    "tip_of",
    "undisturbed",
]

T = TypeVar("T")
_ATTEMPTS = 20


class Tip(NamedTuple):
    """The end of a session's log as a writer saw it: highest number, and the id of the last frame.

    It names the last frame whose header can be read, whole or damaged: if anyone appends, the tip changes.
    """

    seq: int
    id: str


class Segment(NamedTuple):
    """A run of frames under one name. What replaces it has another name."""

    name: str
    first: int
    last: int
    """The highest number its name promises; a segment that still grows only promises its first."""
    rewritten: bool
    read: Callable[[], bytes]


class SessionEntry(NamedTuple):
    """A session as a listing finds it: no body is opened. `problem` says why it cannot be one."""

    session_id: str
    size_bytes: int
    problem: str | None = None
    tail: bytes | None = None
    """Its newest frame, where finding that costs nothing extra; otherwise a list asks for it."""


class FrameReader(Protocol):
    """Where frames are found. Every method may raise `StoreUnavailable`."""

    def sessions(self, only: str | None = None, labels: Mapping[str, str] | None = None) -> list[SessionEntry]:
        """All sessions, or *only* the one with this id: names and sizes, no bodies.

        A log with an index of labels may leave out sessions whose newest snapshot does not have all these *labels*.
        """

    def segments(self, session_id: str, area: str = "") -> list[Segment]:
        """The session's segments in an area, oldest first; empty when there is no such session.

        Readers take no lock: a segment that is replaced meanwhile raises `FileNotFoundError` from its `read`.
        """

    def tail(self, session_id: str) -> bytes | None:
        """The newest frame, found without reading the whole log; None when the end is not a frame."""


class Area(NamedTuple):
    """Frames of a session outside its log: ``trash/<token>``, or ``quarantine/<name>``."""

    session_id: str
    name: str
    size_bytes: int = 0


class SmallFile(NamedTuple):
    """The bytes of a small file, and the tag of just this version of it."""

    data: bytes
    tag: str


class FileChanged(Exception):
    """A small file has changed since the writer read it."""


def file_of(data: bytes) -> SmallFile:
    """A small file whose tag is its digest, for places that give no tags themselves."""
    return SmallFile(data, hashlib.sha256(data).hexdigest())


class FrameLog(FrameReader, Protocol):
    """Where frames are kept, and found. A backend derives from it and inherits what has a default.

    A session's frames are in an **area**: ``""`` is the log itself. What is done with the others (deleting,
    bringing back, purging, copies, quarantine) stands in `snapshot_plugin.store.trash`, for all backends.
    """

    def exclusively(self, session_id: str) -> AbstractContextManager[None]:
        """Lock the session against other writers, in this process and in others; `SessionLocked` on a timeout.

        `append`, `replace`, `copy` and `move` are called inside it.
        """

    def tip(self, session_id: str) -> Tip | None:
        """The present end of the session's log; None when it has no frames."""

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
        """Add *frame* if the log ends with *after*. Durable when `exclusively` ends; absent or whole on an error.

        The end may also be a frame whose id is in *refused*: a save of the caller's that was never acknowledged
        (`check_end`). With *fresh*, begin a new segment: an existing frame with this number is superseded. Spool
        records numbered up to *covered* are in the frame; a log that keeps the spool too may drop them.

        Returns True when an older segment was thereby finished.

        Raises:
            Conflict: the log ends elsewhere, or a rewritten segment has that number and would hide the frame.
        """

    def replace(self, session_id: str, old: Sequence[Segment], frames: Sequence[bytes], hi: int) -> None:
        """Put *frames*, the last one numbered *hi*, in the place of whole segments that follow each other.

        Readers see the old or the new. The old segments are removed once the new one was read back. Without old
        segments, *frames* are the whole of a session that was not there.
        """

    def areas(self, under: str, session_id: str | None = None) -> list[Area]:
        """The areas in the ``trash`` or in ``quarantine``, of one session or of all."""

    def copy(self, session_id: str, segments: Sequence[Segment], area: str) -> str:
        """Copy segments to an area, durably, whole or not at all; returns the name that the area was given.

        To the trash all of a session's segments are copied, to quarantine one.
        """

    def move(self, session_id: str, source: str, target: str) -> None:
        """Move a whole session from the log (``""``) to the trash or back, in one step.

        Raises:
            SnapshotNotFound: there is nothing in *source*.
            Conflict: a session is to come back, and there is one with its id, or unrecovered words of one.
            SessionLocked: it is to come back, and a session with its id is live.
        """

    def remove(self, areas: Sequence[Area]) -> list[Area]:
        """Permanently remove areas of the trash, each atomically; returns those that were there."""

    def get(self, name: str) -> SmallFile | None:
        """A small file of the store: its marker, its keys, its operation log, a note. None if there is none."""

    def put(self, name: str, data: bytes, tag: str | None) -> str:
        """Replace the version with *tag*, or (None) create the file; durable and whole on return. Returns the tag.

        Raises:
            FileChanged: there is another version. Nothing was written, or it was and the answer got lost.
        """

    def names(self, under: str) -> list[str]:
        """What follows *under* and a slash in the names of small files."""

    def stamp(self, name: str) -> object:
        """A value that changes when a small file does, as cheaply as possible; None if there is none."""
        found = self.get(name)
        return found.tag if found else None

    def tidy(self, *, older_than: timedelta, now: datetime) -> None:
        """Remove what crashes have left behind. By default nothing is left."""
        _ = older_than, now

    def leftovers(self, session_id: str) -> list[str]:
        """Names of files that a crash left behind and that hold no acknowledged data. None by default."""
        _ = session_id
        return []

    def close(self) -> None:
        """Release all resources."""
        return


def check_end(session_id: str, tip: Tip | None, after: Tip | None, refused: Collection[str]) -> None:
    """Raise `Conflict` unless a log with this *tip* ends where a writer expects it; see `FrameLog.append`."""
    if tip != after and not (tip and tip.id in refused):
        raise overtaken(session_id, tip)


def overtaken(session_id: str, tip: Tip | None) -> Conflict:
    """The error of a writer whose base is not the end of the log."""
    now = f"is at snapshot {tip.seq} now" if tip else "is not there any more"
    return Conflict(
        f"session {session_id} {now}: this save does not build on it",
        session_id=session_id,
        hint="load it again and make the change on top of it",
    )


def undisturbed(session_id: str, read: Callable[[], T]) -> T:
    """Call *read* until no segment is replaced during the read; return its result."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            return read()
    raise StoreUnavailable(
        f"session {session_id} keeps changing while it is read", session_id=session_id, hint="try again"
    )


class Frame(NamedTuple):
    """A frame, a save that was never acknowledged, or a stretch of damage: its bytes, and where they are."""

    kind: Literal["frame", "unfinished", "damage"]
    header: Header | None
    data: bytes
    segment: Segment
    offset: int

    def finding(self, session_id: str, kind: str, detail: str) -> Finding:
        """A report about this place."""
        from snapshot_plugin.store.base import Finding  # noqa: PLC0415 — a save needs none

        return Finding(
            session_id=session_id, kind=kind, detail=detail, file=self.segment.name, offset=self.offset,
            seq=self.header.hi if self.header else None,
        )  # fmt: skip


def frames_of(segment: Segment, data: bytes, following: Segment | None, *, until: int | None = None) -> list[Frame]:
    """The frames of a segment. Those that the following segment numbers again were never acknowledged.

    Frames outside the range in the segment's name are damage: the file was renamed or edited. With *until*, nothing
    after the frame with that number is read.
    """
    frames: list[Frame] = []
    for kind, start, end, header in scan(data):
        if header and not _belongs(header, segment, is_first=not frames):
            kind = "damage"  # noqa: PLW2901 — what the scan took for a frame is none of this segment
        elif following and header and header.hi >= following.first:
            kind = "unfinished"  # noqa: PLW2901 — as above
        frames.append(Frame(kind, header, data[start:end], segment, start))
        if until is not None and header and header.hi >= until:
            break
    return frames


def _belongs(header: Header, segment: Segment, *, is_first: bool) -> bool:
    if segment.rewritten:
        return segment.first <= header.hi <= segment.last
    return header.hi == segment.first if is_first else header.hi > segment.first


def frames_in(segments: Sequence[Segment]) -> list[Frame]:
    """All frames of these segments, which follow each other, oldest first."""
    frames: list[Frame] = []
    following = None
    for segment in reversed(segments):
        frames[:0] = frames_of(segment, segment.read(), following)
        following = segment
    return frames


def session_frames(log: FrameReader, session_id: str) -> list[Frame]:
    """Everything in a session's log, oldest first, unfinished saves included."""
    return undisturbed(session_id, lambda: frames_in(log.segments(session_id)))


class TipSeeker:
    """Finds the tip while segments are read, newest first. Numbers of unreadable frames count as used."""

    def __init__(self) -> None:
        self.tip: Tip | None = None
        self._used = 0

    def see(self, segment: Segment, frames: Sequence[Frame]) -> None:
        """Process the next older segment."""
        if self.tip and self.tip.id:
            return
        headers = [frame.header for frame in frames if frame.kind == "frame" and frame.header]
        if segment.rewritten or headers or any(frame.kind == "damage" for frame in frames):
            self._used = max([self._used, segment.last, *(header.hi for header in headers)])
        if used := self._used:
            self.tip = Tip(used, headers[-1].id if headers else "")


def tip_of(segments: Sequence[Segment]) -> Tip | None:
    """The tip, read from the newest segments only."""
    seeker, following = TipSeeker(), None
    for segment in reversed(segments):
        seeker.see(segment, frames_of(segment, segment.read(), following))
        if seeker.tip and seeker.tip.id:
            break
        following = segment
    return seeker.tip
