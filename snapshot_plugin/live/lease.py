"""The lease: the exclusive right to own a live session, as a kernel lock that ends with its holder.

``.lease`` is locked for as long as the session is live. It names the owner; a proper stop empties it, so content
without a lock means that the owner died. Every process that reads or takes the lease briefly locks ``.lease.gate``
first, so a read never makes a take fail and no name is read half-written. The gate contains the **epoch**: a number
that grows each time the session is taken.

`FilePlace` is the `LivePlace` of every store on a local disk: the lease and the spool are files in the session's
directory.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pydantic import ValidationError

from snapshot_plugin.errors import Fenced, SessionLocked, SnapshotError
from snapshot_plugin.live.owners import Ownership, sessions_of
from snapshot_plugin.live.ports import Hold, LocalPlace, LocalStore
from snapshot_plugin.live.spool import Record, Spool, read_spool, unsaved
from snapshot_plugin.model.ids import dirname_of, session_id_of
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.model.value import Timestamp, Value
from snapshot_plugin.store.filenames import LEASE, LEASE_GATE, SPOOL_FILES, spool_has_records
from snapshot_plugin.system import forks
from snapshot_plugin.system.files import disk_errors, locked, try_lock, unlock, write_all

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = ["FileHold", "FilePlace", "Lease", "Owner", "lease_of", "let_go"]

_GATE_TIMEOUT: Final = 5.0
_PROGRAM_CHARS: Final = 40
_LONGEST: Final = 64 * 1024


class Owner(Value):
    """The process that has a session, and where it can be asked (`control`).

    `program` is a short name such as ``asnap``. Arguments are left out: they can hold secrets, and a lease is not
    encrypted.
    """

    pid: int
    host: str
    since: Timestamp
    program: str = ""
    control: str | None = None

    @classmethod
    def this_process(cls, *, since: datetime, control: str | None = None) -> Self:
        """This process, under the name of the running script."""
        host = socket.gethostname()
        return cls(pid=os.getpid(), host=host, since=since, program=_program(), control=control)

    @classmethod
    def read(cls, fd: int) -> Self | None:
        """The owner named in the first line of a lock file; None if there is none."""
        line, _, _rest = os.pread(fd, _LONGEST, 0).partition(b"\n")
        try:
            return cls.model_validate_json(line) if line else None
        except ValidationError:
            return None

    def write(self, fd: int) -> None:
        """Write this owner to a lock file that the caller has locked."""
        line = self.model_dump_json(exclude={"command"}).encode() + b"\n"  # 0.1.0 stored the command line here
        # Write the new line before truncating: a kill in between leaves a complete first line.
        os.lseek(fd, 0, os.SEEK_SET)
        write_all(fd, line)
        os.ftruncate(fd, len(line))

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine."""
        return self.host == socket.gethostname()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {rfc3339(self.since)}"


def _program() -> str:
    """The script's file name; the interpreter's if there is no script (``python -c``, a prompt)."""
    script = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    name = script or Path(sys.executable or "python").name
    return "".join(char for char in name if char.isprintable())[:_PROGRAM_CHARS]


class Lease:
    """This process's lock on a session. Released by `release`, or when the process ends for any reason."""

    def __init__(self, fd: int, directory: Path, owner: Owner, previous: Owner | None, epoch: int) -> None:
        self.owner = owner
        self.previous = previous
        """The previous owner, if it ended without a proper stop; otherwise None."""
        self.epoch = epoch
        """The fencing number: higher than that of every earlier holder of this session."""
        self._path = directory / LEASE
        self._identity = os.fstat(fd)
        self._fd = fd
        _held.add(self)

    @classmethod
    def acquire(cls, directory: Path, owner: Owner) -> Self:
        """Take the lease of the session in *directory*.

        Raises:
            SessionLocked: another process has it; the message says which and since when.
            StoreUnavailable: the disk refused.
        """
        with _opened(directory, os.O_CREAT) as fd:
            before = Owner.read(fd)
            if not try_lock(fd):
                raise _taken(directory, before)
            epoch = _next_epoch(directory)
            owner.write(fd)
            return cls(os.dup(fd), directory, owner, before, epoch)

    @property
    def is_in_place(self) -> bool:
        """False once the session's directory was moved or removed: the lock then protects nothing."""
        try:
            return self._fd >= 0 and os.path.samestat(self._identity, os.stat(self._path))  # noqa: PTH116 — often
        except OSError:
            return False

    def release(self) -> None:
        """Release the session as properly stopped. Idempotent."""
        fd, self._fd = self._fd, -1
        let_go(fd)

    def hand_back(self) -> None:
        """Release the session as if it had not been taken: a previous dead owner is still reported as dead."""
        if self.previous is not None and self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                self.previous.write(fd)
            unlock(fd)
        self.release()

    def _leave_to_parent(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def let_go(fd: int) -> None:
    """Empty and close a lock file, as properly released. Does nothing if *fd* is -1."""
    if fd >= 0:
        # Through the descriptor, not the path: the directory may have been moved to the trash meanwhile.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
        unlock(fd)


def lease_of(directory: Path) -> Ownership:
    """The living or dead owner of the session in *directory*; neither after a proper stop. Changes nothing."""
    if not (directory / LEASE).exists():
        return Ownership()
    with _opened(directory) as fd:
        name = Owner.read(fd)
        is_held = not try_lock(fd, shared=True)
    return Ownership(owner=name or _stranger(directory)) if is_held else Ownership(died=name)


@contextlib.contextmanager
def _opened(directory: Path, flags: int = 0) -> Iterator[int]:
    """Open the lease file with the gate locked, so that no other process reads or takes the lease."""
    with (
        disk_errors("looking at the session's lease", session_id=_session_id(directory)),
        locked(directory / LEASE_GATE, session_id=_session_id(directory), timeout=_GATE_TIMEOUT),
    ):
        fd = os.open(directory / LEASE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        try:
            yield fd
        finally:
            os.close(fd)


def _next_epoch(directory: Path) -> int:
    """Increment the epoch in the gate, which the caller has locked. Written before the new epoch is used."""
    fd = os.open(directory / LEASE_GATE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        text = os.pread(fd, 32, 0).strip()
        epoch = int(text) + 1 if text.isdigit() else 1
        os.pwrite(fd, b"%d\n" % epoch, 0)
    finally:
        os.close(fd)
    return epoch


def _session_id(directory: Path) -> str:
    return session_id_of(directory.name) or directory.name


def _stranger(directory: Path) -> Owner:
    since = datetime.fromtimestamp((directory / LEASE).stat().st_mtime, UTC)
    return Owner(pid=0, host="unknown", since=since)


def _taken(directory: Path, owner: Owner | None) -> SessionLocked:
    session_id = _session_id(directory)
    return SessionLocked(
        f"session {session_id!r} belongs to {owner or _stranger(directory)}",
        session_id=session_id,
        hint="stop that process, or fork the session",
    )


_held: weakref.WeakSet[Lease] = weakref.WeakSet()


def _forget_in_child() -> None:
    # A forked child shares the lock; without this it would keep the session locked after its parent dies.
    for lease in list(_held):
        lease._leave_to_parent()  # noqa: SLF001 — same module


forks.in_child(_forget_in_child)


# The place of stores on a local disk ----------------------------------------------------------------------


class FilePlace:
    """Leases and spools as files in the session's directory: ``.lease``, ``.lease.gate``, ``live``, ``live.1``."""

    def __init__(self, store: LocalPlace) -> None:
        self._store = store

    def take(self, session_id: str, owner: Owner) -> Hold:
        """See `LivePlace`."""
        directory = self._store.session_dir(session_id)
        lease = Lease.acquire(directory, owner)
        try:
            spool = Spool.open(directory, session_id=session_id, keys=self._store.session_keys(session_id))
        except BaseException:
            lease.hand_back()
            raise
        return FileHold(session_id, lease, spool, self._store.session_keys)

    def lease(self, session_id: str, owner: Owner) -> Lease | None:
        """Take the lease without opening the spool; None if there is no such session."""
        directory = self._existing(session_id)
        return Lease.acquire(directory, owner) if directory else None

    def owner(self, session_id: str) -> Owner | None:
        """See `LivePlace`."""
        directory = self._existing(session_id)
        return lease_of(directory).owner if directory else None

    def owners(self) -> Mapping[str, Owner]:
        """See `LivePlace`."""
        found = {session_id: self._owner_as_far_as_known(session_id) for session_id in self._sessions()}
        return {session_id: owner for session_id, owner in found.items() if owner is not None}

    def _owner_as_far_as_known(self, session_id: str) -> Owner | None:
        try:
            return self.owner(session_id)
        except SnapshotError:  # its lease cannot be read, so it may be live
            return Owner(pid=0, host="unknown", since=datetime.now(UTC))

    def abandoned(self) -> Sequence[str]:
        """See `LivePlace`."""
        return [session_id for session_id in self._sessions() if self.is_abandoned(session_id)]

    def is_abandoned(self, session_id: str) -> bool:
        """See `LivePlace`. Reads no record of the spool."""
        directory = self._existing(session_id)
        if directory is None:
            return False
        found = lease_of(directory)
        return found.owner is None and (found.died is not None or spool_has_records(directory))

    def spool_mark(self, session_id: str) -> tuple[int, ...]:
        """See `LivePlace`."""
        directory = self._existing(session_id)
        mark: list[int] = []
        for file in [directory / name for name in SPOOL_FILES] if directory else ():
            with contextlib.suppress(OSError):
                about = file.stat()
                mark += (about.st_size, about.st_mtime_ns)
        return tuple(mark)

    def records(self, session_id: str) -> Sequence[Record]:
        """See `LivePlace`."""
        directory = self._existing(session_id)
        if directory is None:
            return ()
        keys = self._store.session_keys(session_id)
        return read_spool(directory, session_id=session_id, keys=keys).records

    def _existing(self, session_id: str) -> Path | None:
        if isinstance(self._store, LocalStore):
            directory = self._store.path / "sessions" / dirname_of(session_id)
            return directory if directory.is_dir() else None
        return self._store.session_dir(session_id)

    def _sessions(self) -> Sequence[str]:
        return sessions_of(self._store.path) if isinstance(self._store, LocalStore) else ()


class FileHold:
    """A `Hold` of files."""

    def __init__(
        self, session_id: str, lease: Lease, spool: Spool, keys_of: Callable[[str], SessionKeys | None]
    ) -> None:
        self.lease = lease
        self.epoch = lease.epoch
        self.previous = lease.previous
        self.damage = f"{spool.damage}; kept as {spool.set_aside}" if spool.damage else None
        self.append = spool.append_all
        """See `Hold`. An append is a single write; `flush` detects that the session was deleted."""
        self._session_id = session_id
        self._spool = spool
        self._keys_of = keys_of
        self._found, spool.found = spool.found, ()

    @property
    def is_fenced(self) -> bool:
        """See `Hold`. The kernel lock protects the lease, but another process can still move the directory."""
        return not self.lease.is_in_place

    def watch(self, overtaken: Callable[[], None]) -> None:
        """See `Hold`. Never calls *overtaken*: a kernel lock cannot be taken over."""

    @property
    def last(self) -> int:
        """See `Hold`."""
        return self._spool.last

    def flush(self) -> None:
        """See `Hold`."""
        self._spool.flush()
        if self.is_fenced:
            raise Fenced(
                f"session {self._session_id!r} was deleted or moved while it was live here",
                session_id=self._session_id,
            )

    def unsaved(self, after: int) -> Sequence[Record]:
        """See `Hold`."""
        return unsaved(self._found, after, self._session_id)

    def truncate(self, upto: int) -> None:
        """See `Hold`."""
        self._spool.truncate(upto)
        self._found = ()
        with contextlib.suppress(SnapshotError):  # the key may have been rotated since
            self._spool.rekey(self._keys_of(self._session_id))

    def set_aside(self, after: int) -> str | None:
        """See `Hold`."""
        self._found = ()
        return self._spool.keep_aside(after)

    def release(self) -> None:
        """See `Hold`."""
        self._close()
        self.lease.release()

    def hand_back(self) -> None:
        """See `Hold`."""
        self._close()
        self.lease.hand_back()

    def _close(self) -> None:
        with contextlib.suppress(SnapshotError):
            self._spool.flush()
        self._spool.close()
