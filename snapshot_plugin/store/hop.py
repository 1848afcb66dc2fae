"""The way from the event loop to a worker thread and back.

`anyio.to_thread` is general, and takes a fifth of the time of a save. On asyncio, worker threads of our own that
share one queue take a third of that. They also finish the work when asyncio itself cancels the caller
(`Task.cancel`, `asyncio.timeout`). Measured and argued in
docs/decisions/2026-11-16-hop.md. Use this when the caller holds a lock across the call; elsewhere
`anyio.to_thread` is as good.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
import anyio.to_thread

if TYPE_CHECKING:
    from snapshot_plugin.store.sync import Turns
from snapshot_plugin import forks

__all__ = ["in_thread", "in_turn"]

T = TypeVar("T")
_USUAL, _MOST = 6, 32
"""More threads would only wait for the interpreter lock; more are started only while these are blocked."""
_STUCK = 0.05
"""Seconds that a job waits before another thread is started for it."""


async def in_thread(work: Callable[..., T], *args: Any, lost: Callable[[T], object] | None = None) -> T:
    """Run ``work(*args)`` in a worker thread and return its result or raise its error.

    **Cancellation.** Work that has started runs to its end, and the caller waits for that end even if cancelled, so
    a lock held around the call is held until the work stops. A cancelled scope still gets the result, as from
    `anyio.to_thread`. Only asyncio's own cancellation loses the result; *lost* is then called with it, to release
    what was acquired.
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
                with contextlib.suppress(Exception):  # nothing acquired; the cancellation continues
                    lost(job.outcome())
            raise
    result: T = job.outcome()
    return result


async def in_turn(turns: Turns, session_id: str, work: Callable[..., T], *args: Any) -> T:
    """As `in_thread`, once every earlier call for the session is done. Cancelled while it waits, it never runs."""
    if sleeper := turns.enter(session_id, _Sleeper):
        try:
            await sleeper.up.wait()
        except BaseException:
            turns.withdraw(session_id, sleeper)
            raise
    left = False

    def run() -> T:
        nonlocal left
        try:
            return work(*args)
        finally:
            left = True
            turns.leave(session_id)

    try:
        return await in_thread(run)
    except BaseException:
        if not left:  # it was cancelled before it began
            turns.leave(session_id)
        raise


class _Sleeper:
    """Wakes a task from another thread."""

    def __init__(self) -> None:
        self.up = anyio.Event()
        self._soon: Callable[[Callable[[], None]], object] = (
            asyncio.get_running_loop().call_soon_threadsafe if _on_asyncio() else _trio_token().run_sync_soon
        )

    def set(self) -> None:
        self._soon(self.up.set)


def _trio_token() -> Any:
    import trio.lowlevel  # noqa: PLC0415 — only where trio runs

    return trio.lowlevel.current_trio_token()


def _on_asyncio() -> bool:
    try:
        return asyncio.current_task() is not None  # None: trio, as a guest of an asyncio loop
    except RuntimeError:
        return False


class _Job:
    """One call that waits for a worker thread, runs there, or has ended."""

    def __init__(self, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._call = work, args
        self._context: Context = copy_context()
        self._result: Any = None
        self._error: BaseException | None = None
        self._has_begun = False
        self.is_done = False
        self.loop = asyncio.get_running_loop()
        self.way_back = _ended.get(self.loop) or _ended.setdefault(self.loop, _Ended())
        self.end = self.loop.create_future()

    def watch(self, relieve: Callable[[], None]) -> None:
        """Call *relieve* repeatedly until the job has begun."""

        def look() -> None:
            if not self._has_begun:
                relieve()
                self.loop.call_later(_STUCK, look)

        self.loop.call_later(_STUCK, look)

    def do(self) -> None:
        """In the worker thread: the work itself."""
        self._has_begun = True
        work, args = self._call
        try:
            self._result = self._context.run(work, *args)
        except BaseException as error:  # noqa: BLE001 — it is raised again where the work was asked for
            self._error = error

    async def ended(self) -> None:
        """Wait for the end of the work, however often the caller is cancelled."""
        while not self.is_done:
            self.end = self.loop.create_future()
            with contextlib.suppress(asyncio.CancelledError):  # the first one is raised in the end
                await self.end

    def outcome(self) -> Any:
        """Return the result of the work, or raise its error."""
        error, self._error = self._error, None  # dropped here, because its traceback refers to this object
        if error is not None:
            raise error
        return self._result


class _Ended:
    """Finished jobs of one event loop. The loop is woken once for all jobs that end before it runs."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._jobs: list[_Job] = []

    def put(self, job: _Job) -> None:
        """In a worker thread: *job* is done; wake its event loop."""
        with self._lock:
            self._jobs.append(job)
            is_first = len(self._jobs) == 1
        if is_first:
            try:
                job.loop.call_soon_threadsafe(self._tell)
            except RuntimeError:
                if not job.loop.is_closed():  # nobody waits any more
                    raise

    def _tell(self) -> None:
        """On the event loop: wake the callers."""
        with self._lock:
            jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.is_done = True
            if not job.end.done():
                job.end.set_result(None)


_ended: WeakKeyDictionary[asyncio.AbstractEventLoop, _Ended] = WeakKeyDictionary()


class _Threads:
    """The worker threads of this process: a few, and more only while those are stuck (a lock, a slow disk)."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start without threads: initially, and in a forked child, which inherits none."""
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = forks.lock()
        self._count = self._underway = 0

    def take(self, job: _Job) -> None:
        """Queue *job* for the next free thread."""
        with self._lock:
            self._underway += 1
            is_short = self._count < self._underway
            is_usual = self._count < _USUAL
            self._count += is_short and is_usual
        if is_short and is_usual:
            self._start()
        self._jobs.put(job)
        if is_short and not is_usual:
            job.watch(self.relieve)

    def relieve(self) -> None:
        """Start another thread, because a job was not begun in time."""
        with self._lock:
            is_short = self._count < min(self._underway, _MOST)
            self._count += is_short
        if is_short:
            self._start()

    def _start(self) -> None:
        threading.Thread(target=self._serve, name="asnap-store", daemon=True).start()

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            job.do()
            with self._lock:
                self._underway -= 1
            job.way_back.put(job)
            del job  # release it now: it may be large, and the next job may come much later


_threads = _Threads()
forks.in_child(_threads.begin)
