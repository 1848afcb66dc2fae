"""Reading a part of a session, or many of its snapshots, for less than loading each of them whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from snapshot_plugin.codec.document import StoredDocument, message_line, message_of, parsed, path_key
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.errors import InvalidInput, SnapshotNotFound
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model.snapshot import CURRENT_VERSION, Message, SessionSnapshot
from snapshot_plugin.store.log import FrameLog, frames_in, undisturbed
from snapshot_plugin.store.recent import Recent
from snapshot_plugin.store.walk import FoundSnapshot, Replay, changes_in, find, warn_of
from snapshot_plugin.system import forks

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Page", "StoredLines", "Views", "stored_lines"]

_ENTRY_BYTES, _LINE_BYTES = 3 << 10, 128
"""Memory overhead of a cache entry, and of each line in it."""
_FOUND = 4
"""How many sessions' lines are kept for a load that follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some messages of one snapshot."""

    session_id: str
    seq: int
    start: int
    total: int
    """How many messages the snapshot has."""
    messages: tuple[Message, ...]


class StoredLines(NamedTuple):
    """One snapshot: its number, the session without its messages, and those as stored lines, not validated."""

    seq: int
    session: SessionSnapshot
    messages: Sequence[bytes]


async def stored_lines(store: SnapshotStore, session_id: str, at: int | None = None) -> StoredLines:
    """The newest snapshot, or the one numbered *at*, as lines. A store that has no lines is read as a whole."""
    if hasattr(store, "lines"):
        found: StoredLines = await store.lines(session_id, at=at)
        return found
    stored = await store.read(session_id, at=at)
    return _as_lines(stored.ref.seq, stored.snapshot)


def _as_lines(seq: int, whole: SessionSnapshot) -> StoredLines:
    return StoredLines(seq, whole.evolve(messages=()), [message_line(message) for message in whole.messages])


class _Lines:
    """One snapshot as stored lines; messages are validated when they are asked for."""

    def __init__(self, seq: int, document: StoredDocument, session_id: str) -> None:
        self.seq, self.document, self._session_id = seq, document, session_id
        self._whole: SessionSnapshot | None = None
        lines = [*document.messages, *document.sections.values()]
        self.size = _ENTRY_BYTES + _LINE_BYTES * len(lines) + sum(map(len, lines))

    def messages(self, start: int, end: int) -> tuple[Message, ...]:
        if self.document.version != CURRENT_VERSION:  # an older release wrote it: it must be migrated as a whole
            self._whole = self._whole or load_document(self.document.raw(self._session_id))
            return self._whole.messages[start:end]
        return tuple(message_of(line, self._session_id) for line in self.document.messages[start:end])


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class Views:
    """Partial reads over a log. The last rebuilt snapshots are cached, up to a number of bytes."""

    def __init__(self, log: FrameLog, keys_of: Callable[[str], SessionKeys | None], *, cache_bytes: int) -> None:
        self._log, self._keys_of, self._limit = log, keys_of, cache_bytes
        self._kept: dict[tuple[str | int | None, ...], _Lines] = {}
        self._size = 0
        self._lock = forks.lock()
        self._found: Recent[FoundSnapshot] = Recent(_FOUND)

    def page(self, session_id: str, at: int | None, start: int | None, count: int) -> Page:
        """Messages *start* to *start* + *count*; without *start*, the last *count*."""
        if not (_is_count(count) and (start is None or _is_count(start))):
            raise InvalidInput(
                f"there is no page with start={start!r} and count={count!r}", hint="use whole numbers, 0 or more"
            )
        lines = self._lines(session_id, at)
        total = len(lines.document.messages)
        first = max(0, total - count) if start is None else min(start, total)
        return Page(
            session_id=session_id, seq=lines.seq, start=first, total=total,
            messages=lines.messages(first, first + count),
        )  # fmt: skip

    def lines(self, session_id: str, at: int | None) -> StoredLines:
        """See `stored_lines`. A load right after the newest was read does not read it again; see `take_found`."""
        lines = self._newest(session_id) if at is None else self._lines(session_id, at)
        document = lines.document
        if document.version != CURRENT_VERSION:
            return _as_lines(lines.seq, load_document(document.raw(session_id)))
        return StoredLines(lines.seq, load_document(document.head(session_id)), document.messages)

    def _newest(self, session_id: str) -> _Lines:
        found = find(self._log, session_id, self._keys_of(session_id), ahead=False)
        warn_of(found, session_id)
        self._found.put(session_id, found)
        return _Lines(found.header.hi, found.document, session_id)

    def take_found(self, session_id: str) -> FoundSnapshot | None:
        """The result of the last `lines`, if it still is the end of the log. Returned only once."""
        found = self._found.pop(session_id)
        return found if found and found.tip == self._log.tip(session_id) else None

    def section(self, session_id: str, path: tuple[str, ...], at: int | None) -> Any:
        """The value of one section, as plain JSON; None if the snapshot has none there."""
        line = self._lines(session_id, at).document.sections.get(path_key(path))
        return None if line is None else parsed(line)["value"]

    def walk(self, session_id: str, seqs: Sequence[int]) -> list[tuple[int, str, SessionSnapshot]]:
        """These snapshots with their frames' ids, in the order asked for. They share their messages."""
        if not seqs:
            return []
        found = undisturbed(session_id, lambda: self._walk(session_id, set(seqs)))
        missing = set(seqs) - found.keys()
        if missing:
            raise SnapshotNotFound(
                f"session {session_id} has no snapshots {sorted(missing)}, or they were forgotten",
                session_id=session_id,
            )
        return [(seq, *found[seq]) for seq in seqs]

    def _walk(self, session_id: str, wanted: set[int]) -> dict[int, tuple[str, SessionSnapshot]]:
        keys, first, last = self._keys_of(session_id), min(wanted), max(wanted)
        segments = [segment for segment in self._log.segments(session_id) if segment.first <= last]
        frames = [frame for frame in frames_in(segments) if frame.kind == "frame"]
        begins = [n for n, frame in enumerate(frames) if (h := frame.header) and h.full and h.lo <= first]
        out: dict[int, tuple[str, SessionSnapshot]] = {}
        walk = Replay(session_id, anywhere=True, ahead=True)
        for frame in frames[begins[-1] if begins else 0 :]:
            for header, lines in changes_in(frame, session_id, keys):
                if gap := walk.take(header, lines):
                    raise gap
                if header.hi in wanted:
                    out[header.hi] = header.id, load_document(walk.document.raw(header.sid))
                if header.hi >= last:
                    return out
        return out

    def _lines(self, session_id: str, at: int | None) -> _Lines:
        tip = self._log.tip(session_id)
        if tip is None:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        newest = self._kept.get((session_id, None, tip.id))
        if newest and at in (None, newest.seq):  # a damaged tip is not among what is found without a number
            return newest
        # An older one may be forgotten, which leaves the tip and replaces segments.
        rest = () if at is None else tuple(segment.name for segment in self._log.segments(session_id))
        key = (session_id, at, tip.id, *rest)
        return self._kept.get(key) or self._keep(key, self._find(session_id, at))

    def _find(self, session_id: str, at: int | None) -> _Lines:
        found = find(self._log, session_id, self._keys_of(session_id), at=at, ahead=False)
        return _Lines(found.header.hi, found.document, session_id)

    def _keep(self, key: tuple[str | int | None, ...], lines: _Lines) -> _Lines:
        with self._lock:
            replaced = self._kept.pop(key, None)
            self._size -= replaced.size if replaced else 0
            self._kept[key] = lines
            self._size += lines.size
            while self._size > self._limit:
                self._size -= self._kept.pop(next(iter(self._kept))).size
        return lines
