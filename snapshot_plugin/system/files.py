"""Durable file operations, each on disk when it returns (or it raises), and a lock for one writer at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
import time
from pathlib import Path
from typing import Any

from snapshot_plugin.errors import SessionLocked, StoreUnavailable, Unsupported

__all__ = [
    "CLOEXEC",
    "NOFOLLOW",
    "disk_errors",
    "locked",
    "make_private_dir",
    "owner_name",
    "replace_file",
    "require",
    "sync_all",
    "sync_data",
    "sync_dir",
    "sync_file",
    "take_lock",
    "try_lock",
    "unavailable",
    "unlock",
    "write_all",
]

CLOEXEC, NOFOLLOW = getattr(os, "O_CLOEXEC", 0), getattr(os, "O_NOFOLLOW", 0)
"""For constants of modules, which must be importable on every system."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02
_FULL_SYNC = 51
"""macOS F_FULLFSYNC: there, fsync alone stops at the drive's cache."""


class disk_errors:  # noqa: N801 — used like the functions of contextlib, and faster: every save passes here
    """Turn an OSError into `StoreUnavailable` that says what was being done."""

    __slots__ = ("_doing", "_session_id")

    def __init__(self, doing: str, *, session_id: str | None = None) -> None:
        self._doing, self._session_id = doing, session_id

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, StoreUnavailable):
            raise unavailable(self._doing, error, self._session_id) from error


def unavailable(doing: str, error: OSError, session_id: str | None = None) -> StoreUnavailable:
    """The error that says what was being done, and for refused permission whose the file is."""
    if error.errno in (errno.EACCES, errno.EPERM) and isinstance(error.filename, (str, bytes, os.PathLike)):
        return _forbidden(doing, Path(os.fsdecode(error.filename)), error, session_id)
    hint = _HINTS.get(error.errno or 0)
    return StoreUnavailable(f"{doing} failed: {error.strerror or error}", session_id=session_id, hint=hint)


_HINTS = {
    errno.ENOENT: "check that the directory exists, then try again",
    errno.ENOTDIR: "check that the directory exists, then try again",
    errno.ENOSPC: "free space, then try again",
    errno.EDQUOT: "free space, then try again",
    errno.EACCES: "fix the permissions, then try again",
    errno.EPERM: "fix the permissions, then try again",
    errno.EROFS: "make the disk writable, or use another place",
}
"""What to do, by the kind of error; the class's own hint for every other kind."""


def _forbidden(doing: str, path: Path, error: OSError, session_id: str | None) -> StoreUnavailable:
    barred, me = _barred(path.absolute()), owner_name(os.geteuid())
    try:
        status = barred.stat()
    except OSError:
        return StoreUnavailable(f"{doing} failed: {error.strerror}: {path}", session_id=session_id)
    message = f"{doing} failed: {error.strerror}: {barred} belongs to {owner_name(status.st_uid)}"
    if status.st_uid == os.geteuid():
        message += f", with mode {stat.S_IMODE(status.st_mode):04o}"
        hint, run = "let yourself read and write it", shlex.join(["chmod", "-R", "u+rwX", str(barred)])
    elif Path("~").expanduser() in barred.parents:  # never advise to take over what may be others'
        hint = "take it over, if a run with sudo has made it; or use another store"
        run = shlex.join(["sudo", "chown", "-R", me, str(barred)])
    else:
        hint, run = "use another store, or ask its owner for access", shlex.join(["ls", "-ld", str(barred)])
    return StoreUnavailable(message, session_id=session_id, hint=hint, run=run)


def _barred(path: Path) -> Path:
    """The uppermost part of *path* that this process may not enter or read; else the lowest it may not write."""
    parts = [part for part in (*reversed(path.parents), path) if os.path.lexists(part)]
    for part in parts:
        needed = (os.X_OK if part.is_dir() else 0) | (os.R_OK if part == path else 0)
        if not os.access(part, needed):
            return part
    return next((part for part in reversed(parts) if not os.access(part, os.W_OK)), parts[-1])


def owner_name(uid: int) -> str:
    """The name of a user, or ``uid 1234`` for one without a name."""
    try:
        import pwd  # noqa: PLC0415 — for an error only, and not on every system

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"uid {uid}"


def sync_data(fd: int) -> None:
    """Force the bytes of an existing file to disk. The cheapest sync for a save."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        sync_all(fd)


def sync_all(fd: int) -> None:
    """Force a new file, or the entries of a directory, to the disk itself."""
    if hasattr(os, "fdatasync"):
        os.fsync(fd)
        return
    try:  # macOS
        _fcntl().fcntl(fd, _FULL_SYNC)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        os.fsync(fd)  # as far as a network volume goes


def sync_dir(path: str | Path) -> None:
    """Force a directory's entries to disk: without it a new file may be gone after a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_all(fd)
    finally:
        os.close(fd)


def sync_file(path: str) -> None:
    """Force to disk what others wrote to the file at *path*. A link there is refused."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        sync_all(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte; the system may take fewer at a time than it was given."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def make_private_dir(path: Path) -> None:
    """Create a directory (and its parents) that only its owner can enter, durably.

    Existing directories are not changed.
    """
    if path.is_dir():
        return
    make_private_dir(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        sync_dir(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()  # otherwise a later call would take it for durable
        raise


def replace_file(path: Path, data: bytes) -> None:
    """Replace *path* atomically: a crash leaves the old content or the new, never a mixture."""
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
        sync_all(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(fd)
    temporary.rename(path)
    sync_dir(path.parent)


def require(what: str) -> None:
    """Raise `Unsupported` on a system without locks on files: *what* needs them."""
    try:
        _fcntl()
    except Unsupported:
        raise Unsupported(f"{what} needs locks on files, which this system does not have") from None


def _fcntl() -> Any:
    try:
        import fcntl  # noqa: PLC0415 — not on every system
    except ImportError:
        raise Unsupported("locks on files need a POSIX system") from None
    return fcntl


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take the kernel lock on an open file, if it is free. The kernel frees it when its holder dies."""
    fcntl = _fcntl()
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class locked:  # noqa: N801 — used like the functions of contextlib
    """`take_lock`, which happens at once, held to the end of ``with``."""

    __slots__ = ("_fd",)

    def __init__(self, path: str | Path, *, session_id: str, timeout: float) -> None:
        self._fd = take_lock(path, session_id=session_id, timeout=timeout)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        unlock(self._fd)


def take_lock(path: str | Path, *, session_id: str, timeout: float, create: bool = True) -> int:
    """Take the kernel lock on the file at *path*; returns the file, for `unlock`.

    The file is created where needed. The kernel frees the lock when its holder dies.
    If the directory was moved to the trash during the wait, the lock is taken again at the new directory.

    Raises:
        SessionLocked: another writer held it for all of *timeout* seconds.
    """
    deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    while True:
        fd = os.open(path, flags, 0o600)
        try:
            is_ours = try_lock(fd)
            if is_ours:
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(fd), os.stat(path)):  # noqa: PTH116 — on the path of a save
                        return fd
        except BaseException:
            unlock(fd)
            raise
        if is_ours:
            unlock(fd)  # the directory was moved: lock the file at its new place
            continue
        os.close(fd)
        if time.monotonic() > deadline:
            raise SessionLocked(
                f"another writer holds session {session_id}", session_id=session_id, hint="try again"
            )
        time.sleep(pause)  # in a worker thread, never on the event loop
        pause = min(pause * 2, _LONGEST_PAUSE)


def unlock(fd: int) -> None:
    """Release a kernel lock and close its file, which a process that was forked meanwhile has open, too."""
    try:
        _fcntl().flock(fd, _fcntl().LOCK_UN)
    finally:
        os.close(fd)
