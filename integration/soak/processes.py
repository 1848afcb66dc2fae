"""Processes that are made to be killed: forked, so that none has to import anything, and heard over a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self

from integration.soak.program import Tally

__all__ = ["PATIENCE", "Child", "Say", "Silent", "apart"]

PATIENCE = 120.0
"""How long anything may take on a busy machine before it counts as a hang, in seconds."""

Say = Callable[[object], None]


class Silent(Exception):
    """A process did not say anything in time: a hang."""


class Child:
    """A fork of this process that does *work* and tells what it has done, a line at a time.

    Use it in a ``with`` block; afterwards it is gone, whatever happened.
    """

    def __init__(self, work: Callable[[Say], None]) -> None:
        self._out, into = os.pipe()
        sys.stdout.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: ours only start anew
            self.pid = os.fork()
        if not self.pid:
            os.close(self._out)
            _work(work, into)
        os.close(into)
        self._rest = b""
        self._ended = False
        self.status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        os.close(self._out)

    def line(self, patience: float = PATIENCE) -> str | None:
        """The next line it says; None when it has ended."""
        deadline = time.monotonic() + patience
        while b"\n" not in self._rest and not self._ended:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                raise Silent(f"nothing for {patience:g} s")
            data = os.read(self._out, 1 << 16)
            self._ended = not data
            self._rest += data
        line, newline, self._rest = self._rest.partition(b"\n")
        return line.decode() if newline else None

    def lines(self, patience: float = PATIENCE) -> Iterator[str]:
        """All that it has still to say, until it ends."""
        while (line := self.line(patience)) is not None:
            yield line

    def kill(self) -> None:
        """SIGKILL, unless it has ended already."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit status, negative for the signal that ended it."""
        deadline = time.monotonic() + patience
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise Silent(f"process {self.pid} does not end")
            else:
                time.sleep(0.001)
        return self.status


def _work(work: Callable[[Say], None], into: int) -> None:
    def say(what: object) -> None:
        os.write(into, f"{what}\n".encode())

    status = 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        work(say)
        status = 0
    except OSError:
        status = 2  # the disk was taken away, as it should be
    except BaseException:  # noqa: BLE001 — a fork must never return into its parent's code
        traceback.print_exc()
    finally:
        os._exit(status)


def apart(work: Callable[[], Tally], patience: float = 3600.0) -> Tally:
    """Do *work* in a process of its own, so that what it changes there stays there."""
    with Child(lambda say: say(json.dumps(vars(work())))) as child:
        line = child.line(patience)
    if line is None:
        raise Silent(f"the process ended with {child.status}")
    tally = Tally(**json.loads(line))
    tally.other = Counter(tally.other)
    return tally
