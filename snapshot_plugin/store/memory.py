"""A store in memory: for tests, and for sessions that need not outlive the process."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from snapshot_plugin.codec.frame import Header, read_header
from snapshot_plugin.codec.scan import last_frame
from snapshot_plugin.errors import Conflict, SnapshotNotFound
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.engine import LogStore, StoreLimits
from snapshot_plugin.store.log import Segment, SessionEntry, Tip, check_end, tip_of
from snapshot_plugin.system import forks

__all__ = ["MemoryLog", "MemoryStore", "open_url"]


class MemoryLog:
    """`FrameLog` in a dict: one segment a session, the same frames as on disk."""

    def __init__(self) -> None:
        self.id = new_id()
        self._frames: dict[str, tuple[bytes, ...]] = {}
        self._last: dict[str, int] = {}
        self._rewritten: Counter[str] = Counter()
        self._trash: dict[str, tuple[Trashed, tuple[bytes, ...], int]] = {}
        self._aside: list[tuple[str, bytes]] = []
        self._lock = forks.rlock()

    @contextlib.contextmanager
    def exclusively(self, session_id: str) -> Iterator[None]:
        """See `FrameLog`. One lock serves all sessions."""
        _ = session_id
        with self._lock:
            yield

    def segments(self, session_id: str) -> list[Segment]:
        """See `FrameLog`."""
        frames, last = self._stored(session_id)
        if frames is None:
            return []
        name = f"memory.{self._rewritten[session_id]}"
        return [Segment(name, 1, last, rewritten=True, read=lambda: b"".join(frames))]

    def _stored(self, session_id: str) -> tuple[tuple[bytes, ...] | None, int]:
        with self._lock:
            return self._frames.get(session_id), self._last.get(session_id, 0)

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
        before = self._frames.get(session_id, ())
        if fresh:
            before = tuple(each for each in before if read_header(each)[0].hi < header.hi)
        self._frames[session_id] = (*before, frame)
        self._last[session_id] = header.hi
        return False

    def tail(self, session_id: str) -> bytes | None:
        """See `FrameLog`."""
        frames, _last = self._stored(session_id)
        return frames[-1] if frames else None

    def replace(self, session_id: str, old: Sequence[Segment], frames: Sequence[bytes], hi: int) -> None:
        """See `FrameLog`."""
        _ = old
        self._frames[session_id] = tuple(frames)
        self._last[session_id] = hi
        self._rewritten[session_id] += 1

    def quarantine(self, session_id: str, segment: Segment) -> str:
        """See `FrameLog`."""
        self._aside.append((session_id, segment.read()))
        return "memory"

    def aside(self, session_id: str | None = None) -> list[tuple[str, Segment]]:
        """See `FrameLog`."""
        return [
            (owner, Segment("memory", 1, 1 << 62, rewritten=True, read=partial(bytes, data)))
            for owner, data in self._aside
            if session_id in (None, owner)
        ]

    def leftovers(self, session_id: str) -> list[str]:
        """See `FrameLog`: there are never any leftovers."""
        _ = session_id
        return []

    def sessions(self, only: str | None = None) -> list[SessionEntry]:
        """See `FrameLog`."""
        sessions = list(self._frames.items())  # other threads may save meanwhile
        return [
            SessionEntry(session_id, sum(map(len, frames)))
            for session_id, frames in sessions
            if only in (None, session_id)
        ]

    def discard(self, session_id: str, *, token: str, now: datetime) -> Trashed:
        """See `FrameLog`."""
        frames, last = self._frames.pop(session_id), self._last.pop(session_id)
        size = sum(map(len, frames))
        trashed = Trashed(session_id=session_id, token=token, deleted_at=now, size_bytes=size)
        self._trash[token] = (trashed, frames, last)
        return trashed

    def keep(self, session_id: str, *, token: str, now: datetime) -> Trashed:
        """See `FrameLog`."""
        frames, last = self._frames[session_id], self._last[session_id]
        size = sum(map(len, frames))
        kept = Trashed(session_id=session_id, token=token, deleted_at=now, size_bytes=size)
        self._trash[token] = (kept, frames, last)
        return kept

    def kept(self, token: str) -> list[Segment]:
        """See `FrameLog`."""
        if token not in self._trash:
            raise SnapshotNotFound(f"nothing in the trash has the token {token}")
        _, frames, last = self._trash[token]
        return [Segment("memory", 1, last, rewritten=True, read=lambda: b"".join(frames))]

    def trash(self) -> list[Trashed]:
        """See `FrameLog`."""
        found = [trashed for trashed, *_ in list(self._trash.values())]
        return sorted(found, key=lambda trashed: trashed.deleted_at, reverse=True)

    def undelete(self, token: str) -> str:
        """See `FrameLog`."""
        with self._lock:
            if token not in self._trash:
                raise SnapshotNotFound(f"nothing in the trash has the token {token}")
            trashed, frames, last = self._trash[token]
            if trashed.session_id in self._frames:
                raise Conflict(f"there is a new session {trashed.session_id}", session_id=trashed.session_id)
            del self._trash[token]
            self._frames[trashed.session_id], self._last[trashed.session_id] = frames, last
            return trashed.session_id

    def purge(self, *, older_than: timedelta, now: datetime, only: str | None = None) -> list[Trashed]:
        """See `FrameLog`."""
        with self._lock:
            gone = [
                trashed
                for trashed in self.trash()
                if now - trashed.deleted_at >= older_than and only in (None, trashed.token)
            ]
            for trashed in gone:
                del self._trash[trashed.token]
            return gone

    def close(self) -> None:
        """See `FrameLog`."""


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
