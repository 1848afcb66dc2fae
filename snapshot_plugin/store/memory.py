"""A store in memory: for tests, and for sessions that need not outlive the process."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from snapshot_plugin.codec.frame import Header, read_header
from snapshot_plugin.codec.scan import last_frame
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.store.engine import LogStore, StoreLimits
from snapshot_plugin.store.log import (
    Area,
    FileChanged,
    FrameLog,
    Segment,
    SessionEntry,
    SmallFile,
    Tip,
    check_end,
    frames_in,
    tip_of,
)
from snapshot_plugin.store.trash import no_such_entry, taken
from snapshot_plugin.system import forks

__all__ = ["MemoryLog", "MemoryStore", "open_url"]


class MemoryLog(FrameLog):
    """`FrameLog` in a dict: one segment a session, the same frames as on disk."""

    def __init__(self) -> None:
        self.id = new_id()
        self._frames: dict[tuple[str, str], tuple[bytes, ...]] = {}
        """The frames of a session in an area."""
        self._last: dict[tuple[str, str], int] = {}
        self._rewritten: Counter[str] = Counter()
        self._files: dict[str, SmallFile] = {}
        self._lock = forks.rlock()

    @contextlib.contextmanager
    def exclusively(self, session_id: str) -> Iterator[None]:
        """See `FrameLog`. One lock serves all sessions."""
        _ = session_id
        with self._lock:
            yield

    def segments(self, session_id: str, area: str = "") -> list[Segment]:
        """See `FrameLog`."""
        frames, last = self._stored(session_id, area)
        if frames is None:
            return []
        name = area or f"memory.{self._rewritten[session_id]}"
        return [Segment(name, 1, last, rewritten=True, read=lambda: b"".join(frames))]

    def _stored(self, session_id: str, area: str = "") -> tuple[tuple[bytes, ...] | None, int]:
        with self._lock:
            return self._frames.get((session_id, area)), self._last.get((session_id, area), 0)

    def _put(self, session_id: str, frames: tuple[bytes, ...], last: int, area: str = "") -> None:
        with self._lock:
            self._frames[session_id, area], self._last[session_id, area] = frames, last

    def tip(self, session_id: str) -> Tip | None:
        """See `FrameLog`."""
        frames, last = self._stored(session_id)
        if frames and (piece := last_frame(frames[-1])) and piece.header:
            return Tip(last, piece.header.id)
        return tip_of(self.segments(session_id))

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
        """See `FrameLog`."""
        _ = covered
        check_end(session_id, self.tip(session_id), after, refused)
        before = self._stored(session_id)[0] or ()
        if fresh:
            before = tuple(each for each in before if read_header(each)[0].hi < header.hi)
        self._put(session_id, (*before, frame), header.hi)
        return False

    def tail(self, session_id: str) -> bytes | None:
        """See `FrameLog`."""
        frames, _last = self._stored(session_id)
        return frames[-1] if frames else None

    def replace(self, session_id: str, old: Sequence[Segment], frames: Sequence[bytes], hi: int) -> None:
        """See `FrameLog`."""
        _ = old
        self._put(session_id, tuple(frames), hi)
        self._rewritten[session_id] += 1

    def sessions(self, only: str | None = None, labels: Mapping[str, str] | None = None) -> list[SessionEntry]:
        """See `FrameLog`."""
        _ = labels
        return [
            SessionEntry(session_id, sum(map(len, frames)))
            for (session_id, area), frames in list(self._frames.items())  # other threads may save meanwhile
            if not area and only in (None, session_id)
        ]

    def areas(self, under: str, session_id: str | None = None) -> list[Area]:
        """See `FrameLog`."""
        return [
            Area(owner, area, sum(map(len, frames)))
            for (owner, area), frames in list(self._frames.items())
            if area.startswith(f"{under}/") and session_id in (None, owner)
        ]

    def copy(self, session_id: str, segments: Sequence[Segment], area: str) -> str:
        """See `FrameLog`."""
        frames = tuple(frame.data for frame in frames_in(segments))
        self._put(session_id, frames, max(segment.last for segment in segments), area)
        return area

    def move(self, session_id: str, source: str, target: str) -> None:
        """See `FrameLog`."""
        with self._lock:
            if (session_id, source) not in self._frames:
                raise no_such_entry(source)
            if (session_id, target) in self._frames:
                raise taken(session_id)
            self._frames[session_id, target] = self._frames.pop((session_id, source))
            self._last[session_id, target] = self._last.pop((session_id, source))

    def remove(self, areas: Sequence[Area]) -> list[Area]:
        """See `FrameLog`."""
        with self._lock:
            gone = [area for area in areas if area[:2] in self._frames]
            for area in gone:
                del self._frames[area[:2]], self._last[area[:2]]
            return gone

    def get(self, name: str) -> SmallFile | None:
        """See `FrameLog`."""
        return self._files.get(name)

    def put(self, name: str, data: bytes, tag: str | None) -> str:
        """See `FrameLog`."""
        with self._lock:
            seen = self._files.get(name)
            if (seen.tag if seen else None) != tag:
                raise FileChanged(name)
            self._files[name] = SmallFile(data, new_id())
            return self._files[name].tag

    def names(self, under: str) -> list[str]:
        """See `FrameLog`."""
        return [name.removeprefix(f"{under}/") for name in list(self._files) if name.startswith(f"{under}/")]


class MemoryStore(LogStore):
    """Snapshots in memory. Keeps every promise of the contract except outliving its process."""

    def __init__(
        self,
        frames: MemoryLog | None = None,
        *,
        limits: StoreLimits | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._memory = frames or MemoryLog()
        super().__init__(self._memory, limits=limits, clock=clock)

    def place_id(self) -> str:
        """See `LogStore`."""
        return self._memory.id


def open_url(url: str) -> MemoryStore:
    """``memory:`` — a new, empty store."""
    _ = url
    return MemoryStore()
