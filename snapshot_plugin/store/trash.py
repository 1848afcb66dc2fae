"""Deleted sessions: a directory is moved to the trash, moved back, or removed by a purge.

The trash also holds copies made before snapshots were dropped, in the same form.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from snapshot_plugin.errors import Conflict, SessionLocked, SnapshotNotFound
from snapshot_plugin.model.ids import dated, dirname_of, new_id, session_id_of, time_of
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.filenames import LEASE, LEASE_GATE, SPOOL, SPOOL_FILES, is_segment
from snapshot_plugin.system.files import (
    disk_errors,
    locked,
    make_private_dir,
    replace_file,
    sync_dir,
    try_lock,
    unlock,
)

__all__ = ["TrashDir", "in_use", "unrecovered"]

_GATE_TIMEOUT = 5.0
_SPOOL_NUMBERS = 20
"""The bytes before the line of JSON in the header of a spool (docs/reference/spool.md)."""

_PURGED = ".purged"
"""The suffix of what is being removed for ever."""
_SETTLED = timedelta(hours=1)
"""A copy begun longer ago than this was left behind by a crash."""


class TrashDir:
    """``trash/<name>.<ulid>/``: the ULID is the token, and the time it was deleted."""

    def __init__(self, root: Path) -> None:
        self._trash, self._sessions = root / "trash", root / "sessions"

    def discard(self, session_id: str, *, token: str, now: datetime) -> Trashed:
        """See `FrameLog`. One rename: the session is either in place or in the trash."""
        stamp = dated(token, now)
        name = dirname_of(session_id)
        with disk_errors(f"deleting session {session_id}", session_id=session_id):
            make_private_dir(self._trash)
            (self._sessions / name).rename(self._trash / f"{name}.{stamp}")
            sync_dir(self._trash)
            sync_dir(self._sessions)
            found = _entry(self._trash / f"{name}.{stamp}")
        return found or Trashed(session_id=session_id, token=stamp, deleted_at=now)

    def copy(
        self, session_id: str, *, linked: Sequence[str], copied: Sequence[str], token: str, now: datetime
    ) -> Trashed:
        """Put a copy of these files of a session in the trash; whole or not at all."""
        stamp, name = dated(token, now), dirname_of(session_id)
        target, unfinished = self._trash / f"{name}.{stamp}", self._trash / f"{name}.{stamp}.tmp"
        with disk_errors(f"keeping a copy of session {session_id}", session_id=session_id):
            make_private_dir(unfinished)
            try:
                for file in linked:
                    _link(self._sessions / name / file, unfinished / file)
                for file in copied:
                    replace_file(unfinished / file, (self._sessions / name / file).read_bytes())
                sync_dir(unfinished)
                unfinished.rename(target)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
            sync_dir(self._trash)
            found = _entry(target)
        return found or Trashed(session_id=session_id, token=stamp, deleted_at=now)

    def find(self, token: str) -> tuple[Trashed, Path]:
        """The trash entry with *token*, and its path."""
        for entry in self.trash():
            if entry.token == token:
                return entry, self._trash / f"{dirname_of(entry.session_id)}.{token}"
        raise _nothing(token)

    def trash(self) -> list[Trashed]:
        """See `FrameLog`."""
        if not self._trash.is_dir():
            return []
        with disk_errors("reading the trash"):
            found = [entry for path in self._trash.iterdir() if (entry := _entry(path))]
        return sorted(found, key=lambda entry: entry.token, reverse=True)

    def undelete(self, token: str) -> str:
        """See `FrameLog`."""
        entry, trashed = self.find(token)
        place = self._sessions / dirname_of(entry.session_id)
        with (
            disk_errors(f"bringing session {entry.session_id} back", session_id=entry.session_id),
            _nobody_at(place, entry.session_id) if place.exists() else contextlib.nullcontext(),
        ):
            if place.exists():
                self._make_room(place, entry.session_id)
            try:
                trashed.rename(place)
            except FileNotFoundError:
                raise _nothing(token) from None
            sync_dir(self._sessions)
            sync_dir(self._trash)
        return entry.session_id

    def _make_room(self, place: Path, session_id: str) -> None:
        """Move away leftovers at *place* of a failed first save or a session that was never saved."""
        names = [path.name for path in place.iterdir()]
        if any(is_segment(name) and (place / name).stat().st_size for name in names):
            raise Conflict(
                f"there is a new session {session_id}",
                session_id=session_id,
                hint="restore the old one under another id, or delete the new one first",
            )
        if set(names) <= {".lock", LEASE, LEASE_GATE, *SPOOL_FILES}:  # they hold and protect nothing
            shutil.rmtree(place)
        else:
            place.rename(self._trash / f"{place.name}.{new_id()}")

    def purge(self, *, older_than: timedelta, now: datetime, only: str | None = None) -> list[Trashed]:
        """See `FrameLog`. A rename takes it out of the trash; only then are its files removed."""
        old = [entry for entry in self.trash() if now - entry.deleted_at >= older_than]
        gone = []
        with disk_errors("emptying the trash"):
            for entry in [entry for entry in old if only in (None, entry.token)]:
                path = self._trash / f"{dirname_of(entry.session_id)}.{entry.token}"
                with contextlib.suppress(FileNotFoundError):  # another process restored or purged it meanwhile
                    path.rename(path.with_name(path.name + _PURGED))
                    gone.append(entry)
            if gone:
                sync_dir(self._trash)  # purged data must not reappear after a power cut
            for path in self._trash.glob(f"*{_PURGED}"):  # also those of a purge that was interrupted
                shutil.rmtree(path, ignore_errors=True)
            for path in self._trash.glob("*.tmp"):
                begun = time_of(path.stem.rpartition(".")[2])
                if begun and now - begun >= max(older_than, _SETTLED):
                    shutil.rmtree(path, ignore_errors=True)
        return gone


def _entry(path: Path) -> Trashed | None:
    """What the trash has at *path*; None if that is no entry, or one that is restored or purged meanwhile."""
    name, _, token = path.name.rpartition(".")
    session_id = session_id_of(name)
    deleted_at = time_of(token)
    if session_id is None or deleted_at is None:
        return None
    try:
        size = sum(_share(file) for file in path.iterdir() if file.is_file())
    except FileNotFoundError:
        return None
    return Trashed(session_id=session_id, token=token, deleted_at=deleted_at, size_bytes=size)


def _nothing(token: str) -> SnapshotNotFound:
    return SnapshotNotFound(f"nothing in the trash has the token {token}", hint="it was purged, or restored before")


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
            if _has_records(place / SPOOL):
                raise unrecovered(session_id)
            yield
        finally:
            if lease >= 0:
                unlock(lease)


def _has_records(spool: Path) -> bool:
    """Whether a spool has more than the header of one that was emptied: numbers and one line of JSON."""
    try:
        with spool.open("rb") as file:
            file.seek(_SPOOL_NUMBERS)
            file.readline()
            return bool(file.read(1))
    except FileNotFoundError:
        return False


def in_use(session_id: str) -> SessionLocked:
    """The error of a session that cannot come back because one with its id is live."""
    return SessionLocked(
        f"a new session {session_id} is live",
        session_id=session_id,
        hint="end its process first, or restore the old one under another id",
    )


def unrecovered(session_id: str) -> Conflict:
    """The error of a session that cannot come back because one with its id has words in its spool alone."""
    return Conflict(
        f"a new session {session_id} has words that no snapshot has yet", session_id=session_id,
        hint="recover them first, or restore the old one under another id", run="asnap recover",
    )  # fmt: skip


def _share(file: Path) -> int:
    """The size of a file; a hard-linked one counts in part."""
    found = file.stat()
    return found.st_size // max(1, found.st_nlink)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # no links on this disk, or too many
        replace_file(target, source.read_bytes())
