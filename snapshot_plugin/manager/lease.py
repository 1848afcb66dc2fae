"""One live owner per session: a kernel lock that is freed when its holder dies, with the owner's name inside.

``.lease`` is locked for as long as the session lives. Its content says who has it and is emptied by a proper
stop, so content without a lock means: ended without stop. ``.lease.gate`` is held for an instant by whoever looks
or takes, so that a look never stands in the way of a take, and a name is never read half-written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, Self

from pydantic import ValidationError

from snapshot_plugin.errors import SessionLocked
from snapshot_plugin.model.ids import session_id_of
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.model.value import Timestamp, Value
from snapshot_plugin.store.files import disk_errors, write_all
from snapshot_plugin.store.lock import locked

__all__ = ["Lease", "Owner", "ended_without_stop", "owner_of"]

_NAME: Final = ".lease"
_GATE: Final = ".lease.gate"
_GATE_TIMEOUT: Final = 5.0


class Owner(Value):
    """The process that has a session, and where it can be asked (`control`)."""

    pid: int
    host: str
    since: Timestamp
    command: tuple[str, ...] = ()
    control: str | None = None

    @classmethod
    def this_process(cls, *, since: datetime, control: str | None = None) -> Self:
        """This very process."""
        command = tuple(sys.orig_argv)
        return cls(pid=os.getpid(), host=socket.gethostname(), since=since, command=command, control=control)

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine."""
        return self.host == socket.gethostname()


class Lease:
    """This process's hold on a session. Freed by `release`, or by the end of the process, however it ends."""

    def __init__(self, fd: int, owner: Owner, previous: Owner | None) -> None:
        self.owner = owner
        self.previous = previous
        """Who had the session before and ended without a proper stop; None after a proper one."""
        self._fd = fd
        _held.add(self)

    @classmethod
    def acquire(cls, directory: Path, owner: Owner) -> Self:
        """Take the session whose directory this is.

        Raises:
            SessionLocked: somebody has it; the text says who and since when. Fork the session instead.
            StoreUnavailable: the disk refused.
        """
        with _opened(directory, os.O_CREAT) as fd:
            before = _read(fd)
            if not _lock(fd, fcntl.LOCK_EX):
                raise _taken(directory, before)
            _write(fd, owner)
            return cls(os.dup(fd), owner, before)

    def release(self) -> None:
        """Let go of the session as properly stopped. Doing it twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            # Through the descriptor, not the path: the directory may have been moved to the trash meanwhile.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)

    def hand_back(self) -> None:
        """Let go as if it had never been taken: who ended without a stop before is still known to have."""
        if self.previous is not None and self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                _write(fd, self.previous)
            os.close(fd)
        self.release()

    def _leave_to_parent(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def owner_of(directory: Path) -> Owner | None:
    """Who has the session now; None when nobody has. A dead owner's name does not count."""
    found = _look(directory)
    return found.name or _stranger(directory) if found.is_held else None


def ended_without_stop(directory: Path) -> Owner | None:
    """Who had the session last, if that process died without a proper stop."""
    found = _look(directory)
    return None if found.is_held else found.name


class _Found(NamedTuple):
    name: Owner | None
    is_held: bool


def _look(directory: Path) -> _Found:
    if not (directory / _NAME).exists():
        return _Found(None, is_held=False)
    with _opened(directory) as fd:
        return _Found(_read(fd), is_held=not _lock(fd, fcntl.LOCK_SH))


@contextlib.contextmanager
def _opened(directory: Path, flags: int = 0) -> Iterator[int]:
    """The lease file, while nobody else looks at it or takes it."""
    with (
        disk_errors("looking at the session's lease", session_id=_session_id(directory)),
        locked(directory / _GATE, session_id=_session_id(directory), timeout=_GATE_TIMEOUT),
    ):
        fd = os.open(directory / _NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        try:
            yield fd
        finally:
            os.close(fd)


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(fd: int) -> Owner | None:
    line, _, _rest = os.pread(fd, os.fstat(fd).st_size, 0).partition(b"\n")
    try:
        return Owner.model_validate_json(line) if line else None
    except ValidationError:
        return None


def _write(fd: int, owner: Owner) -> None:
    line = owner.model_dump_json().encode() + b"\n"
    # New name first, then the cut: killed in between, the first line is whole all the same.
    os.lseek(fd, 0, os.SEEK_SET)
    write_all(fd, line)
    os.ftruncate(fd, len(line))


def _session_id(directory: Path) -> str:
    return session_id_of(directory.name) or directory.name


def _stranger(directory: Path) -> Owner:
    since = datetime.fromtimestamp((directory / _NAME).stat().st_mtime, UTC)
    return Owner(pid=0, host="unknown", since=since)


def _taken(directory: Path, owner: Owner | None) -> SessionLocked:
    session_id = _session_id(directory)
    who = owner or _stranger(directory)
    return SessionLocked(
        f"session {session_id!r} belongs to process {who.pid} on {who.host} since {rfc3339(who.since)}",
        session_id=session_id,
        hint="stop that process, or fork the session",
    )


_held: weakref.WeakSet[Lease] = weakref.WeakSet()


def _forget_in_child() -> None:
    # A forked child shares the lock: without this it would keep the session after its parent was killed.
    for lease in list(_held):
        lease._leave_to_parent()  # noqa: SLF001 — the class of this module


os.register_at_fork(after_in_child=_forget_in_child)
