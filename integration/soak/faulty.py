"""``python -m integration.soak.faulty PLACE FAULT ARGUMENTS…``: the command ``asnap`` on a disk that fails.

FAULT is ``call=K`` (the K-th call that changes something below PLACE fails with EIO), ``rate=R,seed=S`` (each fails
with probability R) or ``size=N`` (no file grows beyond N bytes, as with ``ulimit -f``). Reads never fail. Once a
call has failed, there is a file ``PLACE.failed``.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snapshot_plugin.__main__ import main

_BY_FD = ("write", "pwrite", "writev", "fsync", "fdatasync", "ftruncate")
_BY_PATH = ("open", "rename", "replace", "link", "mkdir", "unlink", "rmdir")


def _decider(fault: str) -> Callable[[], bool]:
    settings = dict(part.split("=") for part in fault.split(","))
    if "call" in settings:
        left = iter(range(int(settings["call"])))
        last = int(settings["call"]) - 1
        return lambda: next(left, -1) == last
    chance, rolls = float(settings["rate"]), random.Random(int(settings["seed"]))
    return lambda: rolls.random() < chance


def inject(place: str, fault: str) -> None:
    """Make the system calls of this process fail below *place*."""
    if fault.startswith("size="):
        limit = int(fault.removeprefix("size="))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return
    fails, failed = _decider(fault), Path(f"{place}.failed")

    def is_ours(target: Any) -> bool:
        if isinstance(target, int):
            try:
                target = Path(f"/proc/self/fd/{target}").readlink()
            except OSError:
                return False
        return os.fsdecode(target).startswith(place + "/sessions")

    def wrapped(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(target: Any, *args: Any, **kwargs: Any) -> Any:
            reads = name == "open" and not (args and args[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if not reads and is_ours(target) and fails():
                failed.touch()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(target, *args, **kwargs)

        return call

    for name in (*_BY_FD, *_BY_PATH):
        setattr(os, name, wrapped(name))


if __name__ == "__main__":
    inject(os.path.realpath(sys.argv[1]), sys.argv[2])
    sys.argv[:3] = ["asnap"]
    main()
