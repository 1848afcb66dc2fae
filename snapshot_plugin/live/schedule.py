"""When live sessions are saved and flushed: the schedule, and the threads that follow it.

A session is saved soon after a significant event, after an interval, and after a failure. All threads are daemons
and sleep while nothing is due.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.system import forks

__all__ = ["FLUSH_INTERVAL", "STUCK", "FlushThread", "SaveThreads", "Schedule", "backoff"]

FLUSH_INTERVAL: Final = 1.0
"""Seconds between flushes: the most that a power cut can lose of an unfinished turn."""
STUCK: Final = 0.5
"""Seconds after which a save counts as stuck: it waits for a lock or a disk, and the saves of others go on."""
_MOST_SAVES: Final = 32
"""Threads that save at once, so that a store with many locked sessions does not start a thread for each."""
_IDLE: Final = 2
"""Threads that stay while nothing is due: one to save, one to go on if that save is stuck."""


def backoff(failures: int, *, first: float, most: float) -> float:
    """Seconds to wait after *failures* in a row: *first*, doubled with each failure, at most *most*."""
    doublings = min(failures - 1, 32)
    return float(min(first * 2**doublings, most))


class Schedule:
    """When the next save is due. It has no clock: the caller passes in each event and its time."""

    def __init__(
        self,
        *,
        now: float,
        interval: float = math.inf,
        debounce: float = 0.3,
        retry_first: float = 1.0,
        retry_max: float = 60.0,
    ) -> None:
        self.interval = interval
        self.failures = 0
        self._debounce, self._retry_first, self._retry_max = debounce, retry_first, retry_max
        self._since = now
        self._touched: float | None = None

    @property
    def due(self) -> float:
        """One interval after the last try, or shortly after a significant event; after a failure, the backoff."""
        if self.failures:
            return self._since + self.retry_in
        regular = self._since + self.interval
        return regular if self._touched is None else min(regular, self._touched + self._debounce)

    @property
    def retry_in(self) -> float:
        """Seconds until the next retry after a failure."""
        return backoff(self.failures, first=self._retry_first, most=self._retry_max)

    def touched(self, now: float) -> None:
        """A significant event happened. Only the first sets the due time, so a stream of events cannot delay it."""
        if self._touched is None:
            self._touched = now

    def begun(self) -> None:
        """A save begins. It may not contain later events."""
        self._touched = None

    def saved(self, now: float) -> None:
        """The save succeeded."""
        self._since, self.failures = now, 0

    def failed(self, now: float) -> None:
        """The save failed."""
        self._since, self.failures = now, self.failures + 1


class SaveThreads:
    """Saves sessions when they are due, in daemon threads that sleep while nothing is due.

    One session is saved at a time, because more threads only contend for the interpreter. A save that takes longer
    than `STUCK` seconds waits for a lock or a disk, and does not hold up the next one.
    """

    def __init__(self) -> None:
        self._changed = forks.condition()
        self._due: dict[LiveSession, Schedule] = {}
        self._began: dict[LiveSession, float] = {}
        """The saves in progress, and when each began."""
        self._threads: set[threading.Thread] = set()
        """One for each save in progress; the others wait for a save to be due."""
        self._is_stopped = False
        forks.in_child(self._forked)

    def _forked(self) -> None:
        self._due, self._began, self._threads = {}, {}, set()  # the parent saves its sessions

    def touch(self, session: LiveSession) -> None:
        """Save *session* soon. Calls until then are coalesced into one save."""
        with self._changed:
            self._due.setdefault(session, Schedule(now=monotonic())).touched(monotonic())
            self._wake_one()

    def _wake_one(self) -> None:
        if len(self._threads) > len(self._began):
            self._changed.notify()
        elif len(self._threads) < _MOST_SAVES:
            thread = threading.Thread(target=self._run, daemon=True, name="asnap save")
            self._threads.add(thread)
            thread.start()

    def forget(self, session: LiveSession) -> None:
        """Stop saving *session*. A save in progress continues."""
        with self._changed:
            self._due.pop(session, None)

    def stop(self) -> None:
        """End each thread after any save in progress."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        while found := self._next():
            session, schedule = found
            succeeded = session.save_scheduled()
            with self._changed:
                del self._began[session]
                (schedule.saved if succeeded else schedule.failed)(monotonic())
                if schedule.due == math.inf and self._due.get(session) is schedule:  # no further save is due
                    del self._due[session]
                if len(self._threads) - len(self._began) > _IDLE:
                    self._threads.discard(threading.current_thread())
                    self._changed.notify()  # the next save need not wait any more
                    return

    def _next(self) -> tuple[LiveSession, Schedule] | None:
        """Wait until the save of a session is due, and return that session; None after `stop`."""
        with self._changed:
            while not self._is_stopped:
                waiting = [each for each in self._due.items() if each[0] not in self._began]
                found = min(waiting, key=lambda each: each[1].due, default=None)
                now = monotonic()
                left = max(found[1].due, self._free_at()) - now if found else None
                if found is not None and left is not None and left <= 0:
                    found[1].begun()
                    self._began[found[0]] = now
                    if len(waiting) > 1:
                        self._wake_one()
                    return found
                self._changed.wait(left)
            return None

    def _free_at(self) -> float:
        """When the next save may begin: once the newest save in progress is stuck."""
        return max(self._began.values(), default=-math.inf) + STUCK


class FlushThread:
    """Calls *flush*, in a daemon thread, *interval* seconds after `wake`. Sleeps until the next `wake`."""

    def __init__(self, flush: Callable[[], None], *, interval: float = FLUSH_INTERVAL) -> None:
        self._flush, self._interval = flush, interval
        self.due = forks.event()
        """Set while a flush is due: `wake` would do nothing."""
        self._starting = forks.lock()
        self._thread: threading.Thread | None = None
        self._stopped = forks.event()
        forks.in_child(self._forked)

    def _forked(self) -> None:
        self._thread = None
        self.due.clear()

    def wake(self) -> None:
        """Schedule a flush. Calls while one is due return immediately."""
        if not self.due.is_set():
            self.due.set()
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, daemon=True, name="asnap flush")
                    self._thread.start()

    def stop(self) -> None:
        """End the thread without flushing."""
        self._stopped.set()
        self.due.set()

    def _run(self) -> None:
        while True:
            self.due.wait()
            if self._stopped.wait(self._interval):
                return
            self.due.clear()  # before the flush, so that records appended during it are flushed next time
            self._flush()
