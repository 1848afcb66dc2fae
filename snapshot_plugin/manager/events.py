"""What happened to sessions, told to whoever wants to know.

A plain subscriber is called at once, in the event loop. An ``async def`` one has a task and a bounded queue of
its own in the manager's task group and gets its events in order. A subscriber that raises is logged and gets
the next event all the same; one that hangs delays nobody: what does not fit its queue is dropped, and counted.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import anyio
import anyio.abc

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.value import Timestamp, Value

__all__ = [
    "Event",
    "EventBus",
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


class Event(Value):
    """Something that happened to one session."""

    name: ClassVar[str] = "event"
    session_id: str
    at: Timestamp


class SnapshotCreated(Event):
    """A snapshot is durable."""

    name = "snapshot_created"
    seq: int
    size_bytes: int
    duration: float
    trigger: str
    tags: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


class SnapshotSkipped(Event):
    """Nothing was written, and why: ``unchanged``, ``persistence_off``, ``no_local_place``."""

    name = "snapshot_skipped"
    reason: str
    trigger: str = "auto"


class SnapshotFailed(Event):
    """Something could not be done. The agent goes on; automatic saves are tried again.

    `operation` is ``save``, ``spool``, ``retention``, ``restore`` or ``control`` (whose session is ``*``: all of
    them); `failures` counts those in a row.
    """

    name = "snapshot_failed"
    operation: str
    code: str
    message: str
    hint: str = ""
    retryable: bool = False
    failures: int = 1
    retry_in: float | None = None


class PartNotKept(Event):
    """A part of an agent's context could not be saved; the rest was. `part` names it: ``tools``, ``history[3]``."""

    name = "part_not_kept"
    part: str
    reason: str


class SessionRestored(Event):
    """A session came back. `grade` says how much of it; `age` is how old its newest snapshot was, in seconds."""

    name = "session_restored"
    seq: int
    age: float
    grade: str
    duration: float
    skipped: int = 0
    fell_back: str | None = None
    """Why the session could not be loaded and was started in a lesser way; None when it was loaded."""


class SessionRecovered(Event):
    """A session that ended without a proper stop was found; what its spool held is now a snapshot."""

    name = "session_recovered"
    records: int
    seq: int | None = None
    problem: str | None = None


Subscriber = Callable[[Any], Awaitable[None] | None]


class EventBus:
    """Hands every event to every subscriber that asked for its kind."""

    def __init__(self) -> None:
        self._subscriptions: list[_Plain | _Queued] = []
        self._tasks: anyio.abc.TaskGroup | None = None

    @property
    def dropped(self) -> int:
        """How many events did not fit the queue of an async subscriber that is still there."""
        return sum(subscription.dropped for subscription in self._queued())

    def subscribe(self, subscriber: Subscriber, *kinds: type[Event]) -> Callable[[], None]:
        """Call *subscriber* with every event of *kinds* (all, if none is named). Returns the way to stop it."""
        if not callable(subscriber):
            raise InvalidInput(f"a subscriber must be callable, not a {type(subscriber).__name__}")
        subscription = _Queued(subscriber, kinds) if _is_async(subscriber) else _Plain(subscriber, kinds)
        self._subscriptions.append(subscription)
        if self._tasks is not None and isinstance(subscription, _Queued):
            self._tasks.start_soon(subscription.run)
        return lambda: self._drop(subscription)

    def emit(self, event: Event) -> None:
        """Tell everybody. Never raises, never waits."""
        for subscription in tuple(self._subscriptions):
            if not subscription.kinds or isinstance(event, subscription.kinds):
                subscription.deliver(event)

    def open(self, tasks: anyio.abc.TaskGroup) -> None:
        """Start serving async subscribers; what was emitted before is waiting for them."""
        self._tasks = tasks
        for subscription in self._queued():
            tasks.start_soon(subscription.run)

    async def aclose(self, within: float) -> None:
        """Let async subscribers finish what they were told, for at most *within* seconds."""
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
        except Exception:  # noqa: BLE001 — a subscriber harms nobody
            _log.exception(_FAILED, event.name, event.session_id)
            return
        if inspect.iscoroutine(answer):
            answer.close()
            _log.error("a subscriber returned a coroutine nobody awaits: make it an async def function")

    def close(self) -> None:
        """Nothing to let go of."""


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
        except Exception:  # noqa: BLE001 — a subscriber harms nobody
            _log.exception(_FAILED, event.name, event.session_id)

    def close(self) -> None:
        self._closed = True
        self._wake.set()


def _is_async(subscriber: Subscriber) -> bool:
    call = type(subscriber).__call__ if not inspect.isroutine(subscriber) else subscriber
    return inspect.iscoroutinefunction(subscriber) or inspect.iscoroutinefunction(call)
