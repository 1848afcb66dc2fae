"""Frames in files: segments that grow at the end, and ranges that replace them (docs/reference/format.md)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from snapshot_plugin.codec.frame import Header, opening_of
from snapshot_plugin.codec.scan import last_frame, scan
from snapshot_plugin.errors import Conflict, InvalidSessionId, SnapshotCorrupted, StoreUnavailable
from snapshot_plugin.model.ids import dirname_of, session_id_of
from snapshot_plugin.store.filenames import SegmentFile, covers, is_segment, present, session_at
from snapshot_plugin.store.files import (
    disk_errors,
    make_private_dir,
    replace_file,
    sync_all,
    sync_data,
    sync_dir,
    write_all,
)
from snapshot_plugin.store.lock import locked
from snapshot_plugin.store.log import Segment, SessionEntry, Tip, tip_of, undisturbed
from snapshot_plugin.store.recent import Recent

__all__ = ["SEGMENT_BYTES", "SEGMENT_FRAMES", "SegmentFiles"]

SEGMENT_BYTES = 4 << 20
SEGMENT_FRAMES = 256
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW
_FIRST_LOOK = 1 << 16
_KNOWN = 1024
"""Of how many sessions a store object remembers where their files end."""


class _Tail(NamedTuple):
    """The position of this writer's last frame, to recognise it without reading the segment."""

    name: str
    start: int
    end: int
    opening: bytes
    frames: int
    tip: Tip


class _Known:
    """This writer's cache of one session's files; it can be rebuilt at any time."""

    __slots__ = ("listed", "ours", "path", "tail", "tip")

    def __init__(self, path: str) -> None:
        self.path = path
        self.tail: _Tail | None = None
        self.tip: Tip | None = None
        self.ours: set[str | None] = set()
        """Ids of frames that this writer has written, or made durable: the last of the log may be one."""
        self.listed: tuple[list[str], list[SegmentFile]] = ([], [])


class SegmentFiles:
    """The part of `FrameLog` that reads and writes one session's files."""

    def __init__(
        self,
        root: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segment_frames: int = SEGMENT_FRAMES,
        lock_timeout: float = 30.0,
    ) -> None:
        self.sessions_dir = root / "sessions"
        self._segment_bytes, self._segment_frames = segment_bytes, segment_frames
        self._lock_timeout = lock_timeout
        self._known: Recent[_Known] = Recent(_KNOWN)

    def directory(self, session_id: str) -> Path:
        """Where the session's files are. A link there is refused: it could lead anywhere."""
        return Path(self._place(session_id))

    def _of(self, session_id: str) -> _Known:
        known = self._known.get(session_id)
        if known is None:
            known = _Known(self._path_of(session_id))
            self._known.put(session_id, known)
        return known

    def _path_of(self, session_id: str) -> str:
        return str(self.sessions_dir / dirname_of(session_id))

    def _place(self, session_id: str) -> str:
        """`directory` as text: a save looks there several times, and paths as objects are slow."""
        path = self._of(session_id).path
        with disk_errors("opening the session", session_id=session_id):
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                return path
        if not stat.S_ISDIR(mode):
            raise StoreUnavailable(
                f"{path} should be the directory of session {session_id} and is not one",
                session_id=session_id, hint="move it away; nothing was written",
            )  # fmt: skip
        return path

    def exclusively(self, session_id: str) -> locked:
        """See `FrameLog`."""
        directory = self._place(session_id)
        path = f"{directory}/.lock"
        with disk_errors("opening the session", session_id=session_id):
            try:
                return locked(path, session_id=session_id, timeout=self._lock_timeout)
            except FileNotFoundError:  # a new session, or one that was deleted meanwhile
                make_private_dir(Path(directory))
                return locked(path, session_id=session_id, timeout=self._lock_timeout)

    def segments(self, session_id: str) -> list[Segment]:
        """See `FrameLog`."""
        directory = self._place(session_id)
        return [
            Segment(
                file.name, file.first, file.last, file.generation > 0, _Reader(directory, file.name, session_id)
            )
            for file in self._files(directory, session_id)
        ]

    def _files(self, directory: str, session_id: str) -> list[SegmentFile]:
        with disk_errors(f"reading session {session_id}", session_id=session_id):
            try:
                names = os.listdir(directory)  # noqa: PTH208 — this is on the path of every save
            except FileNotFoundError:
                return []
        known = self._of(session_id)
        if known.listed[0] != names:
            known.listed = (names, present(names))
        return known.listed[1]

    def tip(self, session_id: str) -> Tip | None:
        """See `FrameLog`. Usually one look: our own last frame is still the last one."""
        directory, known = self._place(session_id), self._of(session_id)
        files, tail = self._files(directory, session_id), known.tail
        if tail and files and files[-1].name == tail.name and _ends_with(f"{directory}/{tail.name}", tail):
            known.tip = tail.tip
        else:
            known.tip, known.tail = undisturbed(session_id, lambda: self._read_tip(session_id))
        return known.tip

    def _read_tip(self, session_id: str) -> tuple[Tip | None, _Tail | None]:
        files = self._files(self._place(session_id), session_id)
        tip = tip_of(self.segments(session_id))
        return tip, self._locate(session_id, files, tip) if tip else None

    def _locate(self, session_id: str, files: Sequence[SegmentFile], tip: Tip) -> _Tail | None:
        """The tail to append behind, if the last file is a segment that ends exactly with the tip's frame."""
        if not files or files[-1].generation:
            return None
        data = _Reader(self._place(session_id), files[-1].name, session_id)()
        pieces = list(scan(data))
        last = pieces[-1] if pieces else None
        if last is None or last.header is None or Tip(last.header.hi, last.header.id) != tip:
            return None
        return _tail(files[-1].name, data[last.start :], last.start, len(pieces), tip)

    def append(self, session_id: str, frame: bytes, header: Header, *, fresh: bool = False) -> bool:
        """See `FrameLog`."""
        known = self._of(session_id)
        directory, previous = known.path, known.tail  # `exclusively` has looked at the path
        tail = None if fresh else previous
        if tail and (tail.end + len(frame) > self._segment_bytes or tail.frames >= self._segment_frames):
            tail = None
        known.tail = None  # until this succeeds it is in doubt: after an error, a new segment is begun
        with disk_errors(f"saving session {session_id}", session_id=session_id):
            self._settle(known, session_id)
            known.ours.add(header.id)
            if tail:
                _extend(f"{directory}/{tail.name}", tail.end, frame)
                name, start, frames = tail.name, tail.end, tail.frames + 1
            else:
                name, start, frames = f"{header.hi:010d}.snap.gz", 0, 1
                self._must_show(session_id, directory, SegmentFile(name, header.hi, header.hi, 0))
                self._create(Path(directory), name, frame)
        known.tip = Tip(header.hi, header.id)
        known.tail = _tail(name, frame, start, frames, known.tip)
        known.ours = {header.id}
        self._known.put(session_id, known)
        return previous is not None and tail is None

    def _must_show(self, session_id: str, directory: str, new: SegmentFile) -> None:
        """Raise if our failed save reached the disk and others rewrote it: it has the number of the new one."""
        if any(covers(file, new) for file in self._files(directory, session_id)):
            raise Conflict(f"session {session_id} was rewritten by another writer", session_id=session_id)

    def _settle(self, known: _Known, session_id: str) -> None:
        """Make durable what we build on, unless we wrote it: its writer may have been killed before it was synced.

        Otherwise an acknowledged frame could survive a power cut without its base or its key.
        """
        directory, tip = known.path, known.tip
        end = tip.id if tip else None
        if end in known.ours:
            return
        if tip:
            holding = [file.name for file in self._files(directory, session_id) if file.first <= tip.seq]
            _sync_file(f"{directory}/{holding[-1]}")
            sync_dir(directory)
        sync_dir(self.sessions_dir)
        sync_dir(self.sessions_dir.parent)
        with contextlib.suppress(FileNotFoundError):  # a plain store has none
            sync_dir(self.sessions_dir.parent / "keys")
        known.ours = {end}

    def _create(self, directory: Path, name: str, frame: bytes) -> None:
        path = directory / name
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
        except FileExistsError:  # leftover of an interrupted save: no frame in it was acknowledged
            replace_file(path, frame)
            return
        try:
            write_all(fd, frame)
            sync_all(fd)
            sync_dir(directory)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        finally:
            os.close(fd)

    def tail(self, session_id: str) -> bytes | None:
        """See `FrameLog`."""
        directory = self._place(session_id)
        files = self._files(directory, session_id)
        if not files:
            return None
        with disk_errors(f"reading session {session_id}", session_id=session_id):
            try:
                fd = os.open(f"{directory}/{files[-1].name}", os.O_RDONLY | _OPEN)
            except FileNotFoundError:  # replaced or deleted since we looked
                return None
            try:
                return _last_frame_of(fd)
            finally:
                os.close(fd)

    def replace(self, session_id: str, old: Sequence[Segment], frames: Sequence[bytes], hi: int) -> None:
        """See `FrameLog`."""
        directory = self.directory(session_id)
        names = [segment.name for segment in old]
        generation = 1 + max((file.generation for file in present(names)), default=0)
        path = directory / f"{old[0].first if old else 1:010d}-{hi:010d}.{generation}.snap.gz"
        content = b"".join(frames)
        with disk_errors(f"rewriting session {session_id}", session_id=session_id):
            replace_file(path, content)
            if path.read_bytes() != content:
                path.unlink()
                raise SnapshotCorrupted("what was written does not read back", session_id=session_id)
            for name in names:
                (directory / name).unlink()
        known = self._of(session_id)
        if known.tail and known.tail.name in names:
            known.tail = None

    def quarantine(self, session_id: str, segment: Segment) -> str:
        """See `FrameLog`."""
        directory = self.directory(session_id)
        target = directory / "quarantine" / segment.name
        with disk_errors(f"setting a file of session {session_id} aside", session_id=session_id):
            make_private_dir(target.parent)
            while target.exists():
                target = target.with_name(target.name + "+")
            replace_file(target, segment.read())
        return str(target.relative_to(directory))

    def aside(self, session_id: str | None = None) -> list[tuple[str, Segment]]:
        """See `FrameLog`."""
        pattern = f"{dirname_of(session_id)}/quarantine/*" if session_id else "*/quarantine/*"
        out = []
        with disk_errors("reading quarantine"):
            for path in sorted(self.sessions_dir.glob(pattern)):
                owner, files = session_id_of(path.parent.parent.name), present([path.name.rstrip("+")])
                if owner and files:
                    read = _Reader(str(path.parent), path.name, owner)
                    is_range, name = files[0].generation > 0, f"quarantine/{path.name}"
                    out.append((owner, Segment(name, files[0].first, files[0].last, is_range, read)))
        return out

    def leftovers(self, session_id: str) -> list[str]:
        """See `FrameLog`: temporary files, and files that a rewritten range has replaced."""
        directory = self.directory(session_id)
        names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
        counted = {file.name for file in present(names)}
        return sorted(name for name in names if name.endswith(".tmp") or (is_segment(name) and name not in counted))

    def sessions(self, only: str | None = None) -> list[SessionEntry]:
        """See `FrameLog`. Directories without frames are not sessions yet; hidden system files are ignored."""
        with disk_errors("listing the store"), os.scandir(self.sessions_dir) as entries:
            wanted = entries if only is None else _called(only, entries)
            return [found for each in wanted if (found := session_at(each))]

    def grown(self, size: int) -> list[str]:
        """The sessions whose open segment, as this writer left it, has at least that many bytes."""
        return [name for name, known in self._known.items() if known.tail and known.tail.end >= size]

    def doubt(self) -> None:
        """There may be a new key: before the next frame of each session, make sure that the disk has it."""
        for known in self._known.values():
            known.ours = set()


class _Reader:
    def __init__(self, directory: str, name: str, session_id: str) -> None:
        self._directory, self._name, self._session_id = directory, name, session_id

    def __call__(self) -> bytes:
        try:
            with os.fdopen(os.open(f"{self._directory}/{self._name}", os.O_RDONLY | _OPEN), "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreUnavailable(
                f"reading {self._name} failed: {error.strerror}", session_id=self._session_id
            ) from error


def _called(session_id: str, entries: Iterable[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    """The session's directory, and other entries of that name that are not session directories."""
    names = {session_id}
    with contextlib.suppress(InvalidSessionId):
        names.add(dirname_of(session_id))
    return (entry for entry in entries if entry.name in names)


def _tail(name: str, frame: bytes, start: int, frames: int, tip: Tip) -> _Tail:
    return _Tail(name, start, start + len(frame), opening_of(frame), frames, tip)


def _ends_with(path: str, tail: _Tail) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | _OPEN)
    except OSError:
        return False
    try:
        return os.fstat(fd).st_size == tail.end and os.pread(fd, len(tail.opening), tail.start) == tail.opening
    finally:
        os.close(fd)


def _extend(path: str, end: int, frame: bytes) -> None:
    """Write *frame* at *end* and sync once. On an error, roll back what was written as far as possible."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | _OPEN)
    try:
        try:
            write_all(fd, frame)
            sync_data(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, end)
            raise
    finally:
        os.close(fd)


def _sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | _OPEN)
    try:
        sync_all(fd)
    finally:
        os.close(fd)


def _last_frame_of(fd: int) -> bytes | None:
    size = os.fstat(fd).st_size
    look = _FIRST_LOOK
    while True:
        at = max(0, size - look)
        end = os.pread(fd, size - at, at)
        if piece := last_frame(end):
            return end[piece.start : piece.end]
        if at == 0:
            return None
        look *= 8
