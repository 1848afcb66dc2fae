"""Frames in files: segments that grow at the end, and ranges that replace them (docs/reference/format.md)."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from snapshot_plugin.codec.frame import OPENING, Header
from snapshot_plugin.codec.scan import last_frame, scan
from snapshot_plugin.errors import Conflict, SnapshotCorrupted, StoreUnavailable
from snapshot_plugin.model.ids import dirname_of
from snapshot_plugin.store.filenames import SegmentFile, called, covers, is_segment, present, session_at
from snapshot_plugin.store.log import FrameReader, Segment, SessionEntry, Tip, check_end, tip_of, undisturbed
from snapshot_plugin.store.recent import Recent
from snapshot_plugin.system.files import (
    CLOEXEC,
    NOFOLLOW,
    disk_errors,
    locked,
    make_private_dir,
    replace_file,
    sync_all,
    sync_data,
    sync_dir,
    sync_file,
    unavailable,
    write_all,
)

__all__ = ["SEGMENT_BYTES", "SEGMENT_FRAMES", "SegmentFiles", "read_segment"]

SEGMENT_BYTES = 4 << 20
SEGMENT_FRAMES = 256
_OPEN = CLOEXEC | NOFOLLOW
_FIRST_LOOK = 1 << 16
_KNOWN = 1024
"""How many sessions' file ends a store object caches."""
_SETTLED_NS, _SECOND_NS = 100_000_000, 1_000_000_000
"""A directory changed within this time may change again in the same tick of the file system's clock."""


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

    __slots__ = ("listed", "ours", "path", "session_id", "tail", "tip")

    def __init__(self, session_id: str, path: str) -> None:
        self.session_id, self.path = session_id, path
        self.tail: _Tail | None = None
        self.tip: Tip | None = None
        self.ours: set[str | None] = set()
        """Ids of frames that this writer has written, or made durable: the last of the log may be one."""
        self.listed: tuple[tuple[int, ...], list[SegmentFile]] = (), []
        """The stamp of the directory, and its files at that time. Threads share it: both are set at once."""

    def wrote(self, name: str, start: int, frame: bytes, frames: int, header: Header) -> None:
        """Remember our frame, which is durable, as the end of the log."""
        self.tip = Tip(header.hi, header.id)
        self.tail = _Tail(name, start, start + len(frame), frame[:OPENING], frames, self.tip)
        self.ours = {header.id}


class SegmentFiles(FrameReader):
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
        self._lock_timeout, self.make_dir = lock_timeout, make_private_dir
        self._known: Recent[_Known] = Recent(_KNOWN)

    def directory(self, session_id: str) -> Path:
        """Where the session's files are. A link there is refused: it could lead anywhere."""
        known = self._of(session_id)
        _stamp(known)
        return Path(known.path)

    def _of(self, session_id: str) -> _Known:
        known = self._known.get(session_id)
        if known is None:
            known = _Known(session_id, self._path_of(session_id))
            self._known.put(session_id, known)
        return known

    def _path_of(self, session_id: str, area: str = "") -> str:
        """Where the files of a session are; an area of the trash is ``trash/<token>``."""
        name, (kind, _, token) = dirname_of(session_id), area.partition("/")
        return str(self.sessions_dir.with_name(kind) / f"{name}.{token}" if area else self.sessions_dir / name)

    def exclusively(self, session_id: str) -> locked:
        """See `FrameLog`."""
        known = self._of(session_id)
        _stamp(known)
        lock = partial(locked, f"{known.path}/.lock", session_id=session_id, timeout=self._lock_timeout)
        with disk_errors("opening the session", session_id=session_id):
            try:
                return lock()
            except FileNotFoundError:  # a new session, or one that was deleted meanwhile
                self.make_dir(Path(known.path))
                return lock()

    def segments(self, session_id: str, area: str = "") -> list[Segment]:
        """See `FrameLog`."""
        known = _Known(session_id, self._path_of(session_id, area)) if area else self._of(session_id)
        return [
            Segment(
                file.name, file.first, file.last, file.generation > 0,
                partial(read_segment, known.path, file.name, session_id),
            )
            for file in _files(known)
        ]  # fmt: skip

    def tip(self, session_id: str) -> Tip | None:
        """See `FrameLog`. Usually one read: our own last frame is still the last one."""
        known = self._of(session_id)
        tail = known.tail
        if tail and (fd := _open_at(known, tail, os.O_RDONLY)) >= 0:
            os.close(fd)
            known.tip = tail.tip
        else:
            known.tip, known.tail = undisturbed(session_id, lambda: self._read_tip(session_id))
        return known.tip

    def _read_tip(self, session_id: str) -> tuple[Tip | None, _Tail | None]:
        known = self._of(session_id)
        files = _files(known)
        tip = tip_of(self.segments(session_id))
        # Where to append: behind the tip's frame, if the last file is a segment that ends exactly with it.
        if tip is None or not files or files[-1].generation:
            return tip, None
        data = read_segment(known.path, files[-1].name, session_id)
        pieces = list(scan(data))
        last = pieces[-1] if pieces else None
        if last is None or last.header is None or Tip(last.header.hi, last.header.id) != tip:
            return tip, None
        opening = data[last.start : last.start + OPENING]
        return tip, _Tail(files[-1].name, last.start, len(data), opening, len(pieces), tip)

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
        """See `FrameLog`. Usually one read and one sync: our own last frame still ends the newest segment."""
        _ = covered  # the spool is a file of its own
        known = self._of(session_id)
        tail = known.tail
        is_usual = tail and tail.tip == after and tail.tip.id in known.ours and not fresh
        if tail and is_usual and not self._is_full(tail, frame) and self._write(known, tail, frame, header):
            return False
        check_end(session_id, self.tip(session_id), after, refused)
        tail, known.tail = known.tail, None  # unknown until this succeeds: after an error, a new segment is begun
        if (known.tip.id if known.tip else None) not in known.ours:
            self._settle(known)
        if tail and not fresh and not self._is_full(tail, frame) and self._write(known, tail, frame, header):
            return False
        self._begin(known, frame, header)
        return tail is not None

    def _is_full(self, tail: _Tail, frame: bytes) -> bool:
        return tail.end + len(frame) > self._segment_bytes or tail.frames >= self._segment_frames

    def _write(self, known: _Known, tail: _Tail, frame: bytes, header: Header) -> bool:
        """Write *frame* behind *tail* and sync once; False, and nothing is written, if the segment ends elsewhere.

        On an error, what was written is taken back as far as possible.
        """
        fd = _open_at(known, tail, os.O_RDWR | os.O_APPEND)
        if fd < 0:
            return False
        known.tail = None
        known.ours.add(header.id)
        try:
            write_all(fd, frame)
            sync_data(fd)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, tail.end)
            if isinstance(error, OSError):
                raise unavailable(f"saving session {known.session_id}", error, known.session_id) from error
            raise
        finally:
            os.close(fd)
        known.wrote(tail.name, tail.end, frame, tail.frames + 1, header)
        self._known.put(known.session_id, known)
        return True

    def _begin(self, known: _Known, frame: bytes, header: Header) -> None:
        """Write *frame* as the first one of a new segment."""
        session_id, name = known.session_id, f"{header.hi:010d}.snap.gz"
        new = SegmentFile(name, header.hi, header.hi, 0)
        if any(covers(file, new) for file in _files(known)):  # others rewrote our failed save of this number
            raise Conflict(f"session {session_id} was rewritten by another writer", session_id=session_id)
        known.ours.add(header.id)
        with disk_errors(f"saving session {session_id}", session_id=session_id):
            self._create(Path(known.path), name, frame)
        known.wrote(name, 0, frame, 1, header)
        self._known.put(session_id, known)

    def _settle(self, known: _Known) -> None:
        """Make durable what we build on and did not write: its writer may have been killed before it was synced.

        Otherwise an acknowledged frame could survive a power cut without its base or its key.
        """
        tip, files = known.tip, _files(known)
        with disk_errors(f"saving session {known.session_id}", session_id=known.session_id):
            if tip:
                holding = [file.name for file in files if file.first <= tip.seq]
                sync_file(f"{known.path}/{holding[-1]}")
                sync_dir(known.path)
            sync_dir(self.sessions_dir)
            sync_dir(self.sessions_dir.parent)
            with contextlib.suppress(FileNotFoundError):  # a plain store has none
                sync_dir(self.sessions_dir.parent / "keys")
        known.ours = {tip.id if tip else None}

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
        known = self._of(session_id)
        files = _files(known)
        if not files:
            return None
        with disk_errors(f"reading session {session_id}", session_id=session_id):
            try:
                fd = os.open(f"{known.path}/{files[-1].name}", os.O_RDONLY | _OPEN)
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

    def leftovers(self, session_id: str) -> list[str]:
        """See `FrameLog`: temporary files, and files that a rewritten range has replaced."""
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
            names = os.listdir(self.directory(session_id))  # noqa: PTH208 — only names are needed
        counted = {file.name for file in present(names)}
        return sorted(name for name in names if name.endswith(".tmp") or (is_segment(name) and name not in counted))

    def sessions(self, only: str | None = None, labels: Mapping[str, str] | None = None) -> list[SessionEntry]:
        """See `FrameLog`. Directories without frames are not sessions yet; hidden system files are ignored."""
        _ = labels
        with disk_errors("listing the store"), os.scandir(self.sessions_dir) as entries:
            wanted = entries if only is None else called(only, entries)
            return [found for each in wanted if (found := session_at(each))]

    def grown(self, size: int) -> list[str]:
        """The sessions whose open segment, as this writer left it, has at least that many bytes."""
        return [name for name, known in self._known.items() if known.tail and known.tail.end >= size]

    def doubt(self) -> None:
        """Sync the keys before the next frame of each session, because there may be a new one."""
        for known in self._known.values():
            known.ours = set()


def _stamp(known: _Known) -> tuple[int, ...]:
    """A value that changes when a file is added or removed; empty if there is no directory. A link is refused."""
    try:
        about = os.lstat(known.path)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise unavailable("opening the session", error, known.session_id) from error
    if not stat.S_ISDIR(about.st_mode):
        raise StoreUnavailable(
            f"{known.path} should be the directory of session {known.session_id} and is not one",
            session_id=known.session_id, hint="move it away; nothing was written",
        )  # fmt: skip
    return about.st_mtime_ns, about.st_ctime_ns, about.st_ino


def _files(known: _Known) -> list[SegmentFile]:
    """The files that count. A directory with an unchanged stamp is not listed again."""
    stamp, now = _stamp(known), time.time_ns()
    if not stamp:
        return []
    listed, files = known.listed
    if stamp == listed:
        return files
    with disk_errors(f"reading session {known.session_id}", session_id=known.session_id):
        try:
            files = present(os.listdir(known.path))  # noqa: PTH208 — this is on the path of a save
        except FileNotFoundError:
            return []
    changed = stamp[0]
    if changed % _SECOND_NS and changed < now - _SETTLED_NS:  # whole seconds: a coarse clock
        known.listed = stamp, files
    return files


def read_segment(directory: str, name: str, session_id: str) -> bytes:
    """The bytes of one file. Raises `FileNotFoundError` if it was replaced or deleted."""
    try:
        with os.fdopen(os.open(f"{directory}/{name}", os.O_RDONLY | _OPEN), "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreUnavailable(f"reading {name} failed: {error.strerror}", session_id=session_id) from error


def _open_at(known: _Known, tail: _Tail, flags: int) -> int:
    """Open the newest segment, if it still ends with our frame *tail*; otherwise -1."""
    files = _files(known)
    if not files or files[-1].name != tail.name:
        return -1
    fd = -1
    with contextlib.suppress(OSError):
        fd = os.open(f"{known.path}/{tail.name}", flags | _OPEN)
        if os.fstat(fd).st_size == tail.end and os.pread(fd, OPENING, tail.start) == tail.opening:
            return fd
    if fd >= 0:
        os.close(fd)
    return -1


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
