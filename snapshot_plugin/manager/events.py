"""Events about sessions, their subscribers, and the `Reporter` that emits them.

A plain subscriber is called immediately, in the event loop. An ``async def`` subscriber has its own task and a
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
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import anyio
import anyio.abc

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.live.outcome import describe, loggable
from snapshot_plugin.manager.ports import is_failure
from snapshot_plugin.model.value import Timestamp, Value

if TYPE_CHECKING:
    from snapshot_plugin.live.recovery import Recovered
    from snapshot_plugin.manager.ports import Clock
    from snapshot_plugin.model.meta import SnapshotRef
    from snapshot_plugin.store.base import StoredSnapshot

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


class Event(Value):
    """Something that happened to one session."""

    name: ClassVar[str] = "event"
    session_id: str
    at: Timestamp


class SnapshotCreated(Event):
    """A snapshot is durable."""

    name = "snapshot_created"
    seq: int
    """The number of the snapshot."""
    size_bytes: int
    duration: float
    """Seconds the save took."""
    trigger: str
    """``manual``, ``interval``, ``event``, ``exit``, …"""
    tags: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    """Limits that were exceeded, or changes by other writers."""


class SnapshotSkipped(Event):
    """Nothing was written. Reasons: ``unchanged``, ``persistence_off``, ``no_local_place``."""

    name = "snapshot_skipped"
    reason: str
    trigger: str = "auto"


class SnapshotFailed(Event):
    """An operation failed. The agent continues, and automatic saves are retried."""

    name = "snapshot_failed"
    operation: str
    """``save``, ``spool``, ``lease``, ``retention``, ``restore`` or ``control`` (with ``*`` for all sessions)."""
    code: str
    """The code of the error."""
    message: str
    hint: str = ""
    """What to do."""
    retryable: bool = False
    failures: int = 1
    """Failures in a row."""
    retry_in: float | None = None
    """Seconds until the next try."""


class PartNotKept(Event):
    """A part of an agent's context could not be saved; the rest was saved."""

    name = "part_not_kept"
    part: str
    """The part: ``tools``, ``history[3]``, …"""
    reason: str


class SessionRestored(Event):
    """A session was restored."""

    name = "session_restored"
    seq: int
    """The snapshot that was loaded."""
    age: float
    """How old that snapshot was, in seconds."""
    grade: str
    """``native-load``, ``native-resume``, ``context`` or ``fresh``."""
    duration: float
    """Seconds the restore took."""
    skipped: int = 0
    """How many newer snapshots are damaged."""
    fell_back: str | None = None
    """Why the session could not be loaded; None if it was."""


class SessionRecovered(Event):
    """A session whose process had died was found; the records in its spool are now a snapshot."""

    name = "session_recovered"
    records: int
    """How many records were recovered."""
    seq: int | None = None
    """The snapshot that holds them."""
    problem: str | None = None
    """Why recovery failed; the spool is kept."""


Subscriber = Callable[[Any], Awaitable[None] | None]


class EventBus:
    """Passes each event to the subscribers of its kind."""

    def __init__(self) -> None:
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
        """Pass *event* to all subscribers. Never raises, never waits."""
        for subscription in tuple(self._subscriptions):
            if not subscription.kinds or isinstance(event, subscription.kinds):
                subscription.deliver(event)

    def open(self, tasks: anyio.abc.TaskGroup) -> None:
        """Start serving async subscribers, beginning with the events emitted before."""
        self._tasks = tasks
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

    def open(self) -> None:
        """Use the event loop of the caller. Until then, calls are made at once."""
        self._thread = threading.get_ident()
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
                self._soon(partial(work, *args, **options))


class Reporter:
    """Emits events and logs failures: ids and reasons, never message content."""

    def __init__(self, bus: EventBus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock

    def created(self, ref: SnapshotRef, *, trigger: str, tags: tuple[str, ...], duration: float) -> None:
        """A snapshot is durable."""
        self._bus.emit(
            SnapshotCreated(
                session_id=ref.session_id,
                at=self._clock(),
                seq=ref.seq,
                size_bytes=ref.size_bytes,
                duration=duration,
                trigger=trigger,
                tags=tags,
                notices=ref.notices,
            )
        )

    def skipped(self, session_id: str, *, reason: str, trigger: str = "auto") -> None:
        """Nothing was written, because nothing changed or persistence is off."""
        self._bus.emit(SnapshotSkipped(session_id=session_id, at=self._clock(), reason=reason, trigger=trigger))

    def failed(
        self, session_id: str, operation: str, error: Exception, *, failures: int = 1, retry_in: float | None = None
    ) -> None:
        """Report a failed operation."""
        about = describe(error)
        _log.warning("session %s: %s failed (%s): %s", session_id, operation, about["code"], loggable(error))
        self._bus.emit(
            SnapshotFailed(
                session_id=session_id,
                at=self._clock(),
                operation=operation,
                failures=failures,
                retry_in=retry_in,
                **about,
            )
        )

    def not_kept(self, session_id: str, part: str, reason: str) -> None:
        """Report a part of an agent's context that could not be saved."""
        _log.warning("session %s: %s is not kept: %s", session_id, part, reason)
        self._bus.emit(PartNotKept(session_id=session_id, at=self._clock(), part=part, reason=reason))

    def restored(
        self, found: StoredSnapshot, *, grade: str, duration: float, fell_back: str | None = None
    ) -> SessionRestored:
        """Report a restored session. Its age is never negative, even if the clock was set back."""
        now = self._clock()
        event = SessionRestored(
            session_id=found.ref.session_id,
            at=now,
            seq=found.ref.seq,
            age=max(0.0, (now - found.snapshot.updated_at).total_seconds()),
            grade=grade,
            duration=duration,
            skipped=len(found.skipped),
            fell_back=fell_back,
        )
        self._bus.emit(event)
        return event

    def recovered(self, recovered: Recovered) -> None:
        """Report a session that ended without a clean stop."""
        self._bus.emit(
            SessionRecovered(
                session_id=recovered.session_id,
                at=self._clock(),
                records=recovered.records,
                seq=recovered.ref.seq if recovered.ref else None,
                problem=recovered.problem,
            )
        )
