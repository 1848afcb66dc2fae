"""One writer at a time: a kernel lock on a file, freed by the kernel when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from snapshot_plugin.errors import SessionLocked

__all__ = ["locked", "take_lock"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


class locked:  # noqa: N801 — used like the functions of contextlib
    """A lock on the file at *path*, taken immediately (see `take_lock`) and held for the ``with`` block."""

    __slots__ = ("_fd",)

    def __init__(self, path: str | Path, *, session_id: str, timeout: float) -> None:
        self._fd = take_lock(path, session_id=session_id, timeout=timeout)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


def take_lock(path: str | Path, *, session_id: str, timeout: float) -> int:
    """Lock the file at *path*, creating it where needed; closing the descriptor frees it.

    If the directory was moved to the trash while we waited, the lock we got guards nothing: try the new one.

    Raises:
        SessionLocked: another writer held it for all of *timeout* seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _wait(fd, session_id, deadline)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):  # noqa: PTH116 — this is on the path of every save
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _wait(fd: int, session_id: str, deadline: float) -> None:
    pause = _FIRST_PAUSE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise SessionLocked(
                    f"another writer holds session {session_id}", session_id=session_id, hint="try again"
                ) from None
            time.sleep(pause)  # in a worker thread, never on the event loop
            pause = min(pause * 2, _LONGEST_PAUSE)
        else:
            return
