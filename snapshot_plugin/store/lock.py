"""One writer at a time: a kernel lock on a file, freed by the kernel when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path

from snapshot_plugin.errors import SessionLocked

__all__ = ["locked"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


class locked:  # noqa: N801 — used like the functions of contextlib
    """A lock on the file at *path*, which is created where needed; taken at once, and held to the end of ``with``.

    If the directory was moved to the trash while we waited, the lock we got guards nothing: the new one is tried.

    Raises:
        SessionLocked: another writer held it for all of *timeout* seconds.
    """

    __slots__ = ("_fd", "segment", "thread")

    def __init__(self, path: str | Path, *, session_id: str, timeout: float) -> None:
        self.thread, self.segment = threading.get_ident(), -1
        """Who holds it; and the file that is open to be written under the lock, closed with it."""
        deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(fd), os.stat(path)):  # noqa: PTH116 — this is on the path of a save
                        self._fd = fd
                        return
                os.close(fd)
            except BlockingIOError:
                os.close(fd)
                if time.monotonic() > deadline:
                    raise SessionLocked(
                        f"another writer holds session {session_id}", session_id=session_id, hint="try again"
                    ) from None
                time.sleep(pause)  # in a worker thread, never on the event loop
                pause = min(pause * 2, _LONGEST_PAUSE)
            except BaseException:
                os.close(fd)
                raise

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.thread = 0
        if self.segment >= 0:
            os.close(self.segment)
        os.close(self._fd)
