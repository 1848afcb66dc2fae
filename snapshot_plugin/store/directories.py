"""`FrameLog` on a local disk: a session is a directory, which is moved to the trash, back, or removed.

::

    sessions/<name>/             the log, and the spool and lease of a live session
    sessions/<name>/quarantine/  segments that a repair has copied
    trash/<name>.<token>/        a deleted session, or a copy of one
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.model.ids import dirname_of, new_id, session_id_of, time_of
from snapshot_plugin.store.filenames import LEASE, LEASE_GATE, SPOOL_FILES, is_segment, present, spool_has_records
from snapshot_plugin.store.log import Area, FileChanged, FrameLog, Segment, SmallFile, file_of
from snapshot_plugin.store.segments import SegmentFiles, read_segment
from snapshot_plugin.store.trash import area_of, in_use, no_such_entry, taken, unrecovered
from snapshot_plugin.system.files import (
    disk_errors,
    locked,
    make_private_dir,
    replace_file,
    sync_dir,
    try_lock,
    unlock,
)

__all__ = ["SessionDirectories"]

_GATE_TIMEOUT = 5.0

_PURGED = ".purged"
"""The suffix of what is being removed for ever."""
_SETTLED = timedelta(hours=1)
"""A copy begun longer ago than this was left behind by a crash."""


class SessionDirectories(SegmentFiles, FrameLog):
    """Sessions in the directories of one store."""

    def __init__(self, root: Path, *, segment_bytes: int, segment_frames: int, lock_timeout: float) -> None:
        super().__init__(
            root, segment_bytes=segment_bytes, segment_frames=segment_frames, lock_timeout=lock_timeout
        )
        self._root, self._trash = root, root / "trash"

    def segments(self, session_id: str, area: str = "") -> list[Segment]:
        """See `FrameLog`."""
        if not area.startswith("quarantine/"):
            return super().segments(session_id, area)
        directory, name = f"{self._path_of(session_id)}/quarantine", area.partition("/")[2]
        (file,) = present([name.rstrip("+")])
        read = partial(read_segment, directory, name, session_id)
        return [Segment(area, file.first, file.last, file.generation > 0, read)]

    def areas(self, under: str, session_id: str | None = None) -> list[Area]:
        """See `FrameLog`."""
        name = dirname_of(session_id) if session_id is not None else "*"
        if under == "trash":
            with disk_errors("reading the trash"):
                paths = [path for path in self._trash.glob("*.*") if name in ("*", path.name.rpartition(".")[0])]
                return [area for path in paths if (area := _trash_area(path))]
        out = []
        with disk_errors("reading quarantine"):
            for path in sorted(self.sessions_dir.glob(f"{name}/quarantine/*")):
                owner = session_id_of(path.parent.parent.name)
                if owner and present([path.name.rstrip("+")]):
                    out.append(Area(owner, f"quarantine/{path.name}"))
        return out

    def copy(self, session_id: str, segments: Sequence[Segment], area: str) -> str:
        """See `FrameLog`. In the trash, finished segments are hard-linked; only the open one is copied."""
        source = self.directory(session_id)
        with disk_errors(f"copying session {session_id}", session_id=session_id):
            if not area.startswith("trash/"):
                for segment in segments:
                    make_private_dir(source / "quarantine")
                    replace_file(source / area, segment.read())
                return area
            target = Path(self._path_of(session_id, area))
            unfinished = target.with_name(target.name + ".tmp")
            make_private_dir(unfinished)
            try:
                for segment in segments:
                    is_finished = segment.rewritten or segment is not segments[-1]
                    (_link if is_finished else _copy)(source / segment.name, unfinished / segment.name)
                sync_dir(unfinished)
                unfinished.rename(target)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
            sync_dir(self._trash)
        return area

    def move(self, session_id: str, source: str, target: str) -> None:
        """See `FrameLog`. One rename: the session is either in place or in the trash."""
        origin, place = (Path(self._path_of(session_id, area)) for area in (source, target))
        doing = f"deleting session {session_id}" if target else f"bringing session {session_id} back"
        with disk_errors(doing, session_id=session_id):
            if target:
                make_private_dir(self._trash)
            is_there = not target and place.exists()
            with _nobody_at(place, session_id) if is_there else contextlib.nullcontext():
                if is_there:
                    self._make_room(place, session_id)
                try:
                    origin.rename(place)
                except FileNotFoundError:
                    raise no_such_entry(source.partition("/")[2]) if source else _missing(session_id) from None
            sync_dir(place.parent)
            sync_dir(origin.parent)

    def _make_room(self, place: Path, session_id: str) -> None:
        """Move away leftovers at *place* of a failed first save or a session that was never saved."""
        names = [path.name for path in place.iterdir()]
        if any(is_segment(name) and (place / name).stat().st_size for name in names):
            raise taken(session_id)
        if set(names) <= {".lock", LEASE, LEASE_GATE, *SPOOL_FILES}:  # they hold and protect nothing
            shutil.rmtree(place)
        else:
            place.rename(self._trash / f"{place.name}.{new_id()}")

    def remove(self, areas: Sequence[Area]) -> list[Area]:
        """See `FrameLog`. A rename takes it out of the trash; only then are its files removed."""
        gone, purged = [], []
        with disk_errors("emptying the trash"):
            for area in areas:
                path = Path(self._path_of(area.session_id, area.name))
                purged.append(path.with_name(path.name + _PURGED))
                with contextlib.suppress(FileNotFoundError):  # another process restored or purged it meanwhile
                    path.rename(purged[-1])
                    gone.append(area)
            if gone:
                sync_dir(self._trash)  # purged data must not reappear after a power cut
            for path in purged:
                shutil.rmtree(path, ignore_errors=True)
        return gone

    def get(self, name: str) -> SmallFile | None:
        """See `FrameLog`."""
        with contextlib.suppress(FileNotFoundError):
            return file_of((self._root / name).read_bytes())
        return None

    def put(self, name: str, data: bytes, tag: str | None) -> str:
        """See `FrameLog`."""
        path = self._root / name
        make_private_dir(self._root)
        make_private_dir(path.parent)
        with locked(self._root / ".create", session_id=f"({name})", timeout=self._lock_timeout):
            present = self.get(name)
            if (present.tag if present else None) != tag:
                raise FileChanged(name)
            replace_file(path, data)
        return file_of(data).tag

    def names(self, under: str) -> list[str]:
        """See `FrameLog`."""
        return [path.name for path in (self._root / under).glob("*") if not path.name.endswith(".tmp")]

    def tidy(self, *, older_than: timedelta, now: datetime) -> None:
        """Remove what an interrupted purge or copy has left in the trash."""
        with disk_errors("emptying the trash"):
            for path in self._trash.glob(f"*{_PURGED}"):
                shutil.rmtree(path, ignore_errors=True)
            for path in self._trash.glob("*.tmp"):
                begun = time_of(path.stem.rpartition(".")[2])
                if begun and now - begun >= max(older_than, _SETTLED):
                    shutil.rmtree(path, ignore_errors=True)


def _trash_area(path: Path) -> Area | None:
    """The area at *path*; None if that is no entry, or one that is restored or purged meanwhile."""
    name, _, token = path.name.rpartition(".")
    session_id = session_id_of(name)
    if session_id is None or time_of(token) is None:
        return None
    try:
        size = sum(_share(file) for file in path.iterdir() if file.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Area(session_id, area_of(token), size)


def _missing(session_id: str) -> SnapshotNotFound:
    return SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)


@contextlib.contextmanager
def _nobody_at(place: Path, session_id: str) -> Iterator[None]:
    """Make sure that nobody records a live session at *place*, and that nobody begins one meanwhile.

    Raises:
        SessionLocked: the session is live.
        Conflict: it has words that no snapshot has yet: its process was killed, or its last save failed.
    """
    lease = -1
    with locked(place / LEASE_GATE, session_id=session_id, timeout=_GATE_TIMEOUT):
        try:
            with contextlib.suppress(FileNotFoundError):
                lease = os.open(place / LEASE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                if not try_lock(lease):
                    raise in_use(session_id)
            if spool_has_records(place):
                raise unrecovered(session_id)
            yield
        finally:
            if lease >= 0:
                unlock(lease)


def _share(file: Path) -> int:
    """The size of a file; a hard-linked one counts in part."""
    found = file.stat()
    return found.st_size // max(1, found.st_nlink)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # no links on this disk, or too many
        _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    replace_file(target, source.read_bytes())
