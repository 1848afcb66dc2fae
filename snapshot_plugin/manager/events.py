"""The subscribers to events about sessions.

Events may be emitted in any thread; subscribers are called in the manager's event loop. A plain subscriber is
called immediately, if the event was emitted there. An ``async def`` subscriber has its own task and a
bounded queue in the manager's task group and gets its events in order. An exception in a subscriber is logged,
and the subscriber gets the next event. A subscriber that hangs delays no others: events that do not fit its queue
are dropped and counted.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any

import anyio
import anyio.abc

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.live.events import (
    Event,
    PartNotKept,
    SessionRecovered,
    SessionRestored,
    SnapshotCreated,
    SnapshotFailed,
    SnapshotSkipped,
)
from snapshot_plugin.manager.ports import is_failure

__all__ = [
    "Event",
    "EventBus",
    "LoopCalls",
    "PartNotKept",
    "SessionRecovered",
    "SessionRestored",
    "SnapshotCreated",
    "SnapshotFailed",
    "SnapshotSkipped",
    "Subscriber",
]

_log = logging.getLogger(__name__)

_FAILED = "a subscriber failed on %s of session %s"

QUEUE_SIZE = 1000
"""How many events may wait for a slow async subscriber."""


Subscriber = Callable[[Any], Awaitable[None] | None]


class EventBus:
    """Passes each event to the subscribers of its kind."""

    def __init__(self) -> None:
        self.in_loop = LoopCalls()
        """Makes calls in the event loop of the subscribers."""
        self._subscriptions: list[_Plain | _Queued] = []
        self._tasks: anyio.abc.TaskGroup | None = None

    @property
    def dropped(self) -> int:
        """How many events were dropped because the queue of an async subscriber was full."""
        return sum(subscription.dropped for subscription in self._queued())

    def subscribe(self, subscriber: Subscriber, *kinds: type[Event]) -> Callable[[], None]:
        """Call *subscriber* with every event of *kinds*, or with all events. Returns a function to unsubscribe."""
        if not callable(subscriber):
            raise InvalidInput(f"a subscriber must be callable, not a {type(subscriber).__name__}")
        subscription = _Queued(subscriber, kinds) if _is_async(subscriber) else _Plain(subscriber, kinds)
        self._subscriptions.append(subscription)
        if self._tasks is not None and isinstance(subscription, _Queued):
            self._tasks.start_soon(subscription.run)
        return lambda: self._drop(subscription)

    def emit(self, event: Event) -> None:
        """Pass *event* to all subscribers, from any thread. Never raises, never waits."""
        self.in_loop(self._deliver, event)

    def _deliver(self, event: Event) -> None:
        for subscription in tuple(self._subscriptions):
            if not subscription.kinds or isinstance(event, subscription.kinds):
                subscription.deliver(event)

    def open(self, tasks: anyio.abc.TaskGroup) -> None:
        """Start serving async subscribers, beginning with the events emitted before."""
        self._tasks = tasks
        self.in_loop.open()
        for subscription in self._queued():
            tasks.start_soon(subscription.run)

    async def aclose(self, within: float) -> None:
        """Wait up to *within* seconds until async subscribers have handled their events."""
        if self._tasks is None:
            return
        self._tasks = None
        with anyio.move_on_after(within, shield=True):
            for subscription in self._queued():
                subscription.close()
            for subscription in self._queued():
                await subscription.finished.wait()

    def _queued(self) -> list[_Queued]:
        return [subscription for subscription in self._subscriptions if isinstance(subscription, _Queued)]

    def _drop(self, subscription: _Plain | _Queued) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            subscription.close()


class _Plain:
    def __init__(self, subscriber: Subscriber, kinds: tuple[type[Event], ...]) -> None:
        self.kinds = kinds
        self._subscriber = subscriber

    def deliver(self, event: Event) -> None:
        try:
            answer = self._subscriber(event)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 — logged, and the others are served
            _log.exception(_FAILED, event.name, event.session_id)
            return
        if inspect.iscoroutine(answer):
            answer.close()
            _log.error("a subscriber returned a coroutine nobody awaits: make it an async def function")

    def close(self) -> None:
        """Does nothing: a plain subscriber has no task."""


class _Queued:
    def __init__(self, subscriber: Subscriber, kinds: tuple[type[Event], ...]) -> None:
        self.kinds = kinds
        self.dropped = 0
        self.finished = anyio.Event()
        self._subscriber = subscriber
        self._waiting: deque[Event] = deque()
        self._wake = anyio.Event()
        self._closed = False

    def deliver(self, event: Event) -> None:
        if len(self._waiting) >= QUEUE_SIZE:
            self.dropped += 1
            _log.warning("a subscriber is too slow: dropped %s of session %s", event.name, event.session_id)
            return
        self._waiting.append(event)
        self._wake.set()

    async def run(self) -> None:
        try:
            while not self._closed or self._waiting:
                await self._serve()
        finally:
            self.finished.set()

    async def _serve(self) -> None:
        await self._wake.wait()
        while self._waiting:
            await self._call(self._waiting.popleft())
        if not self._closed:
            self._wake = anyio.Event()

    async def _call(self, event: Event) -> None:
        try:
            answer = self._subscriber(event)
            if answer is not None:
                await answer
        except BaseException as error:
            if not is_failure(error):
                raise
            _log.exception(_FAILED, event.name, event.session_id)  # and the others are served

    def close(self) -> None:
        self._closed = True
        self._wake.set()


def _is_async(subscriber: Subscriber) -> bool:
    call = type(subscriber).__call__ if not inspect.isroutine(subscriber) else subscriber
    return inspect.iscoroutinefunction(subscriber) or inspect.iscoroutinefunction(call)


class LoopCalls:
    """Makes calls in a manager's event loop, from any thread: at once if the caller is there, else soon."""

    def __init__(self) -> None:
        self._soon: Callable[[Callable[[], object]], object] | None = None
        self._thread = 0
        self._context = Context()
        """Of the event loop: without it, anyio does not know which kind of loop runs a call."""
        self._is_open = False

    def open(self) -> None:
        """Use the event loop of the caller from now on."""
        self.use_this()
        self._is_open = True

    def use_this(self) -> None:
        """Use the event loop of the caller, unless one was opened. Before, calls are made at once."""
        if self._is_open:
            return
        self._thread, self._context = threading.get_ident(), copy_context()
        try:
            self._soon = asyncio.get_running_loop().call_soon_threadsafe
        except RuntimeError:
            import trio.lowlevel  # noqa: PLC0415 — only where trio runs

            self._soon = trio.lowlevel.current_trio_token().run_sync_soon

    def __call__(self, work: Callable[..., object], *args: Any, **options: Any) -> None:
        """Call ``work(*args, **options)``."""
        if self._soon is None or self._thread == threading.get_ident():
            work(*args, **options)
        else:
            with suppress(RuntimeError):  # the loop has ended: nobody is left to be told
                self._soon(partial(self._context.copy().run, partial(work, *args, **options)))
