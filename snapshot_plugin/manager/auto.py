"""Saving one session by itself: on time, after what matters, and again after a failure.

Time here is the event loop's, which does not jump.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.live import LiveSession

__all__ = ["AutoSnapshot", "Schedule", "backoff"]


def backoff(failures: int, *, first: float, most: float) -> float:
    """How long to wait after so many failures in a row: doubled with each, up to a limit."""
    doublings = min(failures - 1, 32)
    return float(min(first * 2**doublings, most))


class Schedule:
    """When the next save is due. Told what happens and at what time; knows no clock."""

    def __init__(self, *, interval: float, config: SnapshotConfig, now: float) -> None:
        self.interval = interval
        self.failures = 0
        self._config = config
        self._since = now
        self._touched: float | None = None

    @property
    def due(self) -> float:
        """The interval after the last try, or shortly after something significant; after a failure, the backoff."""
        if self.failures:
            return self._since + self.retry_in
        regular = self._since + self.interval
        return regular if self._touched is None else min(regular, self._touched + self._config.event_debounce)

    @property
    def retry_in(self) -> float:
        """How long a failure makes the next try wait."""
        return backoff(self.failures, first=self._config.retry_first, most=self._config.retry_max)

    def touched(self, now: float) -> None:
        """Something significant happened. The first one counts: a stream of them must not starve the save."""
        if self._touched is None:
            self._touched = now

    def begun(self) -> None:
        """A save begins: what happens from now on is not in it for sure."""
        self._touched = None

    def saved(self, now: float) -> None:
        """The save succeeded."""
        self._since, self.failures = now, 0

    def failed(self, now: float) -> None:
        """The save failed."""
        self._since, self.failures = now, self.failures + 1


class AutoSnapshot:
    """The task that saves one session until it is stopped. Nothing it does raises into anybody."""

    def __init__(
        self,
        live: LiveSession,
        schedule: Schedule,
        *,
        failed: Callable[[str, Exception, Schedule], None],
    ) -> None:
        self.live = live
        self._schedule = schedule
        self._failed = failed
        self._wake = anyio.Event()
        self._finished = anyio.Event()
        self._scope = anyio.CancelScope()
        self._stopping = False

    def touch(self) -> None:
        """Something significant happened: save soon, once for all of it."""
        before = self._schedule.due
        self._schedule.touched(anyio.current_time())
        if self._schedule.due < before:
            self._wake.set()

    def set_interval(self, interval: float) -> None:
        """Save this often from now on."""
        self._schedule.interval = interval
        self._wake.set()

    async def run(self) -> None:
        """Save whenever it is due, until `stop`."""
        try:
            with self._scope:
                while not self._stopping:
                    await self._step()
        finally:
            self._finished.set()

    async def stop(self) -> None:
        """End the task after the save that is under way, if one is."""
        self._stopping = True
        self._wake.set()
        await self._finished.wait()

    async def abort(self) -> None:
        """End the task now; a save under way either happens whole or not at all."""
        self._scope.cancel()
        await self._finished.wait()

    async def _step(self) -> None:
        wait = self._schedule.due - anyio.current_time()
        if wait <= 0:
            await self._attempt()
            return
        self._wake = anyio.Event()
        with anyio.move_on_after(wait):
            await self._wake.wait()

    async def _attempt(self) -> None:
        self._schedule.begun()
        try:
            await self.live.save("auto")
        except Exception as error:  # noqa: BLE001 — no failure may end the task
            self._schedule.failed(anyio.current_time())
            self._failed(self.live.session_id, error, self._schedule)
        else:
            self._schedule.saved(anyio.current_time())
