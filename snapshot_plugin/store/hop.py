"""The way from the event loop to a worker thread and back.

`anyio.to_thread` is general, and takes a fifth of the time of a save. On asyncio, worker threads of our own that
share one queue take a third of that. They also finish the work when asyncio itself cancels the caller
(`Task.cancel`, `asyncio.timeout`). Measured and argued in
docs/decisions/2026-11-16-hop.md. Use this when the caller holds a lock across the call; elsewhere
`anyio.to_thread` is as good.

A disk may never answer. A `Deadline` bounds the wait of a program that ends: the thread is abandoned, and because
all threads here are daemons, the process can exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar, copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
import anyio.to_thread

from snapshot_plugin.errors import StoreUnavailable
from snapshot_plugin.system import forks

if TYPE_CHECKING:
    from snapshot_plugin.store.sync import Turns

__all__ = ["Abandoned", "Deadline", "in_thread", "in_turn", "is_in_event_loop"]

T = TypeVar("T")
_USUAL, _MOST = 6, 32
"""More threads would only wait for the interpreter lock; more are started only while these are blocked."""
_STUCK = 0.05
"""Seconds that a job waits before another thread is started for it."""


class Abandoned(StoreUnavailable):
    """Work in a thread did not end before the `Deadline`. It may still take effect."""


class Deadline:
    """Until when `in_thread` waits for work, in the tasks where it `applies`. Work that takes longer is abandoned.

    Before `set` is called, nothing is abandoned.
    """

    def __init__(self) -> None:
        self._at = math.inf
        self._waiting: set[anyio.CancelScope] = set()

    def set(self, seconds: float) -> None:
        """Give up in *seconds* from now, also what waits already."""
        self._at = anyio.current_time() + seconds
        for scope in self._waiting:
            scope.deadline = self._at

    @contextlib.contextmanager
    def applies(self) -> Iterator[None]:
        """Apply it to the block, and to the tasks that are started there."""
        token = _deadline.set(self)
        try:
            yield
        finally:
            _deadline.reset(token)

    def shield(self) -> anyio.CancelScope:
        """A scope that nothing but the deadline cancels. Pass it to `left` at its end."""
        scope = anyio.CancelScope(shield=True, deadline=self._at)
        self._waiting.add(scope)
        return scope

    def left(self, scope: anyio.CancelScope) -> None:
        """Forget *scope*, which has ended."""
        self._waiting.discard(scope)


_deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


async def in_thread(work: Callable[..., T], *args: Any, lost: Callable[[T], object] | None = None) -> T:
    """Run ``work(*args)`` in a worker thread and return its result or raise its error.

    **Cancellation.** Work that has started runs to its end, and the caller waits for that end even if cancelled, so
    a lock held around the call is held until the work stops. A cancelled scope still gets the result, as from
    `anyio.to_thread`. Only asyncio's own cancellation and a `Deadline` lose the result; *lost* is then called with
    it, to release what was acquired.

    Raises:
        Abandoned: the `Deadline` that applies here has passed. Work that had not started never will.
    """
    result: T = await _result_of(_Call(work, args, lost), _threads)
    return result


async def in_turn(turns: Turns, session_id: str, work: Callable[..., T], *args: Any) -> T:
    """As `in_thread`, once every earlier call for the session is done. Cancelled while it waits, it never runs."""
    if sleeper := turns.enter(session_id, _Sleeper):
        try:
            await sleeper.up.wait()
        except BaseException:
            turns.withdraw(session_id, sleeper)
            raise

    def run() -> T:
        try:
            return work(*args)
        finally:
            turns.leave(session_id)

    call = _Call(run, ())
    try:
        result: T = await _result_of(call, _threads_in_turn)
    except BaseException:
        if not call.has_begun:
            turns.leave(session_id)
        raise
    return result


async def _result_of(call: _Call, threads: _Threads) -> Any:
    await anyio.lowlevel.checkpoint_if_cancelled()
    deadline = _deadline.get()
    scope = deadline.shield() if deadline else anyio.CancelScope(shield=True)
    try:
        with scope:
            if _on_asyncio():
                await _end_on_asyncio(call, threads, scope)
            else:
                await _end_on_trio(call, threads)
    finally:
        if deadline:
            deadline.left(scope)
    if scope.cancelled_caught and call.abandon():
        await anyio.lowlevel.checkpoint_if_cancelled()
        raise Abandoned("the store did not answer in time", hint="check its disk or its server")
    return call.outcome()


async def _end_on_asyncio(call: _Call, threads: _Threads, scope: anyio.CancelScope) -> None:
    """Wait until *call* has ended in one of our own threads, or until the deadline cancels *scope*."""
    job = _Job(call)
    threads.take(job)
    try:
        await job.end
    except asyncio.CancelledError:
        if not scope.cancel_called:  # asyncio itself cancelled the task, regardless of shields
            await job.ended(scope)
            call.give_back()
        if not job.is_done:
            threads.write_off(job)
        raise


async def _end_on_trio(call: _Call, threads: _Threads) -> None:
    limiter = threads.limiter.get(None)
    if limiter is None:
        threads.limiter.set(limiter := anyio.CapacityLimiter(_MOST))
    try:
        await anyio.to_thread.run_sync(call.do, abandon_on_cancel=True, limiter=limiter)
    except anyio.get_cancelled_exc_class():
        if call.has_begun:
            limiter.total_tokens += 1  # its thread may never end
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


def is_in_event_loop() -> bool:
    """Whether the caller runs in an event loop, which it must not block."""
    trio = sys.modules.get("trio")
    return _on_asyncio() or (trio is not None and trio.lowlevel.in_trio_run())


def _on_asyncio() -> bool:
    try:
        return asyncio.current_task() is not None  # None: trio, as a guest of an asyncio loop
    except RuntimeError:
        return False


class _Call:
    """One call that waits for a worker thread, runs there, or has ended. *lost* gets a result nobody awaits."""

    def __init__(
        self, work: Callable[..., Any], args: tuple[Any, ...], lost: Callable[[Any], object] | None = None
    ) -> None:
        self._call, self._lost = (work, args), lost
        self._result: Any = None
        self._error: BaseException | None = None
        self._guard = forks.lock()
        self._is_abandoned = self._has_ended = False
        self.has_begun = False

    def do(self) -> None:
        """In the worker thread: the work itself, unless it was abandoned before it began."""
        with self._guard:
            if self._is_abandoned:
                return
            self.has_begun = True
        work, args = self._call
        try:
            self._result = work(*args)
        except BaseException as error:  # noqa: BLE001 — it is raised again where the work was asked for
            self._error = error
        with self._guard:
            self._has_ended = True
        if self._is_abandoned:
            self._give_back()

    def abandon(self) -> bool:
        """Do not wait for the work any more. False if its outcome is there."""
        with self._guard:
            self._is_abandoned = not self._has_ended
        return self._is_abandoned

    def give_back(self) -> None:
        """Pass the result to *lost*, now or when the work ends."""
        if not self.abandon():
            self._give_back()

    def _give_back(self) -> None:
        if self._lost and self._error is None:
            with contextlib.suppress(Exception):  # best effort: nobody is left to be told
                self._lost(self._result)

    def outcome(self) -> Any:
        """Return the result of the work, or raise its error."""
        error, self._error = self._error, None  # dropped here, because its traceback refers to this object
        if error is not None:
            raise error
        return self._result


class _Job:
    """A call in one of our own threads, and the event loop that waits for its end."""

    def __init__(self, call: _Call) -> None:
        self.call = call
        self._context: Context = copy_context()
        self.is_done = False
        self.is_over = False
        """Whether its thread is free again, or written off. Guarded by the lock of `_Threads`."""
        self.loop = asyncio.get_running_loop()
        self.way_back = _ended.get(self.loop) or _ended.setdefault(self.loop, _Ended())
        self.end = self.loop.create_future()

    def watch(self, relieve: Callable[[], None]) -> None:
        """Call *relieve* repeatedly until the job has begun."""

        def look() -> None:
            if not self.call.has_begun:
                relieve()
                self.loop.call_later(_STUCK, look)

        self.loop.call_later(_STUCK, look)

    def do(self) -> None:
        """In the worker thread: the work itself."""
        self._context.run(self.call.do)

    async def ended(self, scope: anyio.CancelScope) -> None:
        """Wait for the end of the work, however often asyncio cancels the caller, or until *scope* is cancelled."""
        while not self.is_done and not scope.cancel_called:
            self.end = self.loop.create_future()
            with contextlib.suppress(asyncio.CancelledError):  # the first one is raised in the end
                await self.end


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
        self.limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter | None] = anyio.lowlevel.RunVar("limiter")
        """Of trio's own threads, which are used there instead."""
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

    def write_off(self, job: _Job) -> None:
        """Do not count the thread of an abandoned job any more: it may never end. It ends with that job."""
        with self._lock:
            if job.call.has_begun and not job.is_over:
                job.is_over = True
                self._count -= 1
                self._underway -= 1

    def _start(self) -> None:
        threading.Thread(target=self._serve, name="asnap-store", daemon=True).start()

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            job.do()
            with self._lock:
                if job.is_over:
                    return
                job.is_over = True
                self._underway -= 1
            job.way_back.put(job)
            del job  # release it now: it may be large, and the next job may come much later


_threads, _threads_in_turn = _Threads(), _Threads()
"""Work of `in_thread` may wait for a session's turn, as a live session's save does. What has the turn runs in the
others, so that it always finds a thread."""
forks.in_child(_threads.begin)
forks.in_child(_threads_in_turn.begin)
