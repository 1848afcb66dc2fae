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
from snapshot_plugin.store.filenames import SegmentFile, covers, is_segment, present
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

__all__ = ["SEGMENT_BYTES", "SEGMENT_FRAMES", "SegmentFiles"]

SEGMENT_BYTES = 4 << 20
SEGMENT_FRAMES = 256
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW
_FIRST_LOOK = 1 << 16


class _Tail(NamedTuple):
    """Where this writer's last frame stands, to recognise it again without reading the segment."""

    name: str
    start: int
    end: int
    opening: bytes
    frames: int
    tip: Tip


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
        self._tails: dict[str, _Tail] = {}
        self._tips: dict[str, Tip | None] = {}
        self._ours: dict[str, set[str | None]] = {}
        self._paths: dict[str, str] = {}
        self._listed: dict[str, tuple[list[str], list[SegmentFile]]] = {}

    def directory(self, session_id: str) -> Path:
        """Where the session's files are. A link there is refused: it could lead anywhere."""
        return Path(self._place(session_id))

    def _place(self, session_id: str) -> str:
        """`directory` as text: a save looks there several times, and paths as objects are slow."""
        path = self._paths.get(session_id)
        if path is None:
            path = self._paths[session_id] = str(self.sessions_dir / dirname_of(session_id))
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
        listed = self._listed.get(session_id)
        if listed is None or listed[0] != names:
            listed = self._listed[session_id] = (names, present(names))
        return listed[1]

    def tip(self, session_id: str) -> Tip | None:
        """See `FrameLog`. Usually one look: our own last frame is still the last one."""
        tip = self._tips[session_id] = undisturbed(session_id, lambda: self._tip(session_id))
        return tip

    def _tip(self, session_id: str) -> Tip | None:
        directory = self._place(session_id)
        files = self._files(directory, session_id)
        tail = self._tails.get(session_id)
        if tail and files and files[-1].name == tail.name and _ends_with(f"{directory}/{tail.name}", tail):
            return tail.tip
        self._tails.pop(session_id, None)
        tip = tip_of(self.segments(session_id))
        if tip and (found := self._locate(session_id, files, tip)):
            self._tails[session_id] = found
        return tip

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
        directory = self._paths[session_id]  # `exclusively` has looked at it
        tail = None if fresh else self._tails.get(session_id)
        if tail and (tail.end + len(frame) > self._segment_bytes or tail.frames >= self._segment_frames):
            tail = None
        # Until this succeeds the tail is in doubt; whoever comes after an error starts a new segment.
        previous = self._tails.pop(session_id, None)
        with disk_errors(f"saving session {session_id}", session_id=session_id):
            self._settle(directory, session_id)
            self._ours[session_id].add(header.id)
            if tail:
                _extend(f"{directory}/{tail.name}", tail.end, frame)
                name, start, frames = tail.name, tail.end, tail.frames + 1
            else:
                name, start, frames = f"{header.hi:010d}.snap.gz", 0, 1
                self._must_show(session_id, directory, SegmentFile(name, header.hi, header.hi, 0))
                self._create(Path(directory), name, frame)
        self._tails[session_id] = _tail(name, frame, start, frames, Tip(header.hi, header.id))
        self._ours[session_id] = {header.id}
        return previous is not None and tail is None

    def _must_show(self, session_id: str, directory: str, new: SegmentFile) -> None:
        """A failed save of ours that is there all the same, and that others rewrote, has the new one's number."""
        if any(covers(file, new) for file in self._files(directory, session_id)):
            raise Conflict(f"session {session_id} was rewritten by another writer", session_id=session_id)

    def _settle(self, directory: str, session_id: str) -> None:
        """Make durable what we build on, unless we wrote it: its writer may have been killed before it was synced.

        Otherwise an acknowledged frame could stand after a power cut without the one it continues, or its key.
        """
        tip = self._tips.get(session_id)
        end = tip.id if tip else None
        if end in self._ours.setdefault(session_id, set()):
            return
        if tip:
            holding = [file.name for file in self._files(directory, session_id) if file.first <= tip.seq]
            _sync_file(f"{directory}/{holding[-1]}")
            sync_dir(directory)
        sync_dir(self.sessions_dir)
        sync_dir(self.sessions_dir.parent)
        with contextlib.suppress(FileNotFoundError):  # a plain store has none
            sync_dir(self.sessions_dir.parent / "keys")
        self._ours[session_id] = {end}

    def _create(self, directory: Path, name: str, frame: bytes) -> None:
        path = directory / name
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
        except FileExistsError:  # what an interrupted save left: no frame in it was ever acknowledged
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
        if (tail := self._tails.get(session_id)) and tail.name in names:
            self.forget_tail(session_id)

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
        """See `FrameLog`. Directories without frames are not sessions yet; what systems hide is none of ours."""
        with disk_errors("listing the store"), os.scandir(self.sessions_dir) as entries:
            wanted = entries if only is None else _called(only, entries)
            return [found for each in wanted if (found := _session_at(each))]

    def grown(self, size: int) -> list[str]:
        """The sessions whose open segment, as this writer left it, has at least that many bytes."""
        return [session_id for session_id, tail in list(self._tails.items()) if tail.end >= size]

    def doubt(self) -> None:
        """There may be a new key: before the next frame of each session, make sure that the disk has it."""
        self._ours.clear()

    def forget_tail(self, session_id: str) -> None:
        """Believe nothing of what is on disk any more."""
        self._tails.pop(session_id, None)


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
    """The session's directory, and what is called as the session is and is no session's directory."""
    names = {session_id}
    with contextlib.suppress(InvalidSessionId):
        names.add(dirname_of(session_id))
    return (entry for entry in entries if entry.name in names)


def _session_at(entry: os.DirEntry[str]) -> SessionEntry | None:
    if entry.name.startswith("."):  # .DS_Store and its like: no session's directory begins so
        return None
    session_id = session_id_of(entry.name)
    if session_id is None or not entry.is_dir(follow_symlinks=False):
        return SessionEntry(session_id or entry.name, 0, "its name is not that of a session directory")
    size = _size(entry.path)
    return SessionEntry(session_id, size) if size else None


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
    """Write *frame* at *end* and sync once. On an error, take back what was written as far as possible."""
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


def _size(directory: str) -> int:
    size = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:  # it may go away while we look
        for entry in entries:
            if is_segment(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    size += entry.stat(follow_symlinks=False).st_size
    return size
