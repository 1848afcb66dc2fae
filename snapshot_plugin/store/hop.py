"""The way from the event loop to a worker thread and back.

`anyio.to_thread` does this for everyone and everything; a save makes the trip each time, and there it is a fifth
of its time. On asyncio, threads of our own that wait at one queue take a third of that. They also keep a promise
that asyncio's own cancellation (`Task.cancel`, `asyncio.timeout`) would otherwise break. Measured and argued in
docs/decisions/2026-11-16-hop.md. Whoever holds or takes something while he waits comes this way; elsewhere
`anyio.to_thread` is as good.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

__all__ = ["in_thread"]

T = TypeVar("T")
_MOST = 32


async def in_thread(work: Callable[..., T], *args: Any, lost: Callable[[T], object] | None = None) -> T:
    """What ``work(*args)`` returns or raises, from a worker thread.

    **Cancellation.** Work that has begun runs to its end, and its caller waits for that end, however it is
    cancelled: whoever holds a lock around the call still holds it when the work stops. A scope that was cancelled
    meanwhile gets the result all the same, as from `anyio.to_thread`. Only asyncio's own cancellation loses it;
    *lost* is then called with it, to give back what was taken.
    """
    if not _on_asyncio():
        return await anyio.to_thread.run_sync(lambda: work(*args))
    await anyio.lowlevel.checkpoint_if_cancelled()
    job = _Job(work, args)
    _threads.take(job)
    with anyio.CancelScope(shield=True):
        try:
            await job.end
        except asyncio.CancelledError:
            await job.ended()
            if lost:
                with contextlib.suppress(Exception):  # work that raised took nothing; the cancellation goes on
                    lost(job.outcome())
            raise
    result: T = job.outcome()
    return result


def _on_asyncio() -> bool:
    try:
        return asyncio.current_task() is not None  # None: trio, as a guest of an asyncio loop
    except RuntimeError:
        return False


class _Job:
    """One call on its way."""

    def __init__(self, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._call = work, args
        self._context: Context = copy_context()
        self._loop = asyncio.get_running_loop()
        self._result: Any = None
        self._error: BaseException | None = None
        self._is_done = False
        self.end = self._loop.create_future()

    def do(self) -> None:
        """In the worker thread: the work itself."""
        work, args = self._call
        try:
            self._result = self._context.run(work, *args)
        except BaseException as error:  # noqa: BLE001 — it is raised again where the work was asked for
            self._error = error

    def report(self) -> None:
        """In the worker thread: word to the event loop."""
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            if not self._loop.is_closed():  # nobody waits any more
                raise

    def _tell(self) -> None:
        self._is_done = True
        if not self.end.done():
            self.end.set_result(None)

    async def ended(self) -> None:
        """Wait for the end of the work, however often the caller is cancelled."""
        while not self._is_done:
            self.end = self._loop.create_future()
            with contextlib.suppress(asyncio.CancelledError):  # the first one is raised in the end
                await self.end

    def outcome(self) -> Any:
        """What the work returned or raised."""
        error, self._error = self._error, None  # not held here: its traceback holds us
        if error is not None:
            raise error
        return self._result


class _Threads:
    """The worker threads of this process: as many as there was ever work for at one time, up to a limit."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """With no threads: at first, and in a forked child, which has none of its parent's."""
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = self._underway = 0

    def take(self, job: _Job) -> None:
        """Have *job* done as soon as a thread is free."""
        with self._lock:
            self._underway += 1
            is_short = self._count < min(self._underway, _MOST)
            self._count += is_short
        if is_short:
            threading.Thread(target=self._serve, name="asnap-store", daemon=True).start()
        self._jobs.put(job)

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            job.do()
            with self._lock:
                self._underway -= 1
            job.report()
            del job  # what it holds may be large, and the next one may be long in coming


_threads = _Threads()
os.register_at_fork(after_in_child=_threads.begin)
