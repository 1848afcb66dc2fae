"""The core between a connection of the SDK and its transport: carries out its actions in an asyncio event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread

from snapshot_plugin.acp.actions import (
    Actions,
    Checkpoint,
    GiveUp,
    HostAction,
    Job,
    Pass,
    PassAs,
    RecordEvent,
    Restart,
    RunBlocking,
    Steps,
    ToAgent,
    ToClient,
)
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.messages import Message
from snapshot_plugin.acp.reducer import record_events
from snapshot_plugin.live.outcome import Outcome, log_failure
from snapshot_plugin.live.sessions import LiveSessions

__all__ = ["Lane", "TaskHost", "Transport"]

_THREADS = 8
_FULL = 1000
_T = TypeVar("_T")
_LAST_WRITE = 1.0
log = logging.getLogger("snapshot_plugin.acp")


class Transport(Protocol):
    """The transport interface of the SDK's connections."""

    async def send(self, message: dict[str, Any]) -> None:
        """Send one message."""

    async def receive(self) -> Any:
        """Return the next message; None once the other side is gone."""

    async def close(self) -> None:
        """Close the transport."""


_Item = tuple[Message, asyncio.Future[Any] | None, asyncio.Future[None]]


class Lane:
    """Sends messages to one side in order, each after the future it waits for is done."""

    def __init__(self, send: Callable[[Message], Awaitable[object]], name: str) -> None:
        self._send, self._name = send, name
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        self._next: _Item | None = None
        """The message that waits for its future before it is sent."""
        self._sending: _Item | None = None
        self._task: asyncio.Task[None] | None = None

    def put(self, message: Message, after: asyncio.Future[Any] | None = None) -> asyncio.Future[None]:
        """Add a message. The returned future is done when the message was sent or failed."""
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may ignore it
        self._queue.put_nowait((message, after, sent))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"snapshot_plugin {self._name}")
        return sent

    async def reclaim(self) -> list[Message]:
        """Remove and return unsent messages: the other side is gone. Their senders get `ConnectionResetError`.

        A message that is being sent is one of them if this fails; a child of the other side may delay it.
        """
        waiting, sending = self._withdrawn(), self._sending
        if sending is None:
            return waiting
        message, _, sent = sending
        await asyncio.wait({sent}, timeout=_LAST_WRITE)
        failed = [message] if sent.done() and sent.exception() is not None else []
        return [*failed, *waiting, *self._withdrawn()]

    def _withdrawn(self) -> list[Message]:
        items = [] if self._next is None else [self._next]
        while not self._queue.empty():
            items.append(self._queue.get_nowait())
            self._queue.task_done()
        unsent = [(message, sent) for message, _, sent in items if not sent.done()]
        for _, sent in unsent:
            sent.set_exception(ConnectionResetError("the other side is gone"))
        return [message for message, _ in unsent]

    async def drained(self) -> None:
        """Wait until everything was sent."""
        await self._queue.join()

    def close(self) -> None:
        """Send nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            message, after, sent = self._next = await self._queue.get()
            try:
                if after is not None:
                    await asyncio.wait({after})
                self._next = None
                if sent.done():  # reclaimed
                    continue
                self._sending = message, after, sent
                await self._send(message)
            except Exception as error:  # noqa: BLE001 — the sender gets it
                if not sent.done():
                    sent.set_exception(error)
            else:
                if not sent.done():
                    sent.set_result(None)
            finally:
                self._sending = None
                self._queue.task_done()


class TaskHost:
    """A transport of the SDK that wraps another: every message passes through the core, and keeps its order.

    `send`, `_read` and the two functions that send are the subclass's: it knows on which side the SDK is.

    Args:
        inner: the wrapped transport.
        core: decides what to do with each message.
        sessions: the live sessions; None if `opened` opens them.
    """

    def __init__(self, inner: Transport, core: Core, sessions: LiveSessions | None) -> None:
        self._inner, self.core, self.sessions = inner, core, sessions
        self.to_client, self.to_agent = Lane(self._to_client, "to client"), Lane(self._to_agent, "to agent")
        self.unsaved: list[Outcome] = []
        """The outcomes of saves that failed in `end`."""
        self._inbox: asyncio.Queue[Message | BaseException | None] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        # A separate limit: work that waits for the store must not use up the threads that the store needs.
        self._threads = anyio.CapacityLimiter(_THREADS)

    # The transport, as the SDK sees it --------------------------------------------------------------------

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message for the connection; None at the end."""
        self._start()
        message = await self._inbox.get()
        self._has_room.set()
        if isinstance(message, BaseException):
            raise message
        return message

    async def close(self) -> None:
        """Save and release the sessions, then close the inner transport; even when cancelled."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            if self._pump is not None:
                self._pump.cancel()
            try:
                await self.end()
            finally:
                await self._inner.close()
        self._inbox.put_nowait(None)

    def _start(self) -> None:
        if self._pump is None and not self._closed:
            self._pump = asyncio.create_task(self._read(), name="snapshot_plugin pump")

    async def _room(self) -> None:
        """Wait while the connection has too many unread messages."""
        while self._inbox.qsize() > _FULL:
            self._has_room.clear()
            await self._has_room.wait()

    # The two sides, which are the subclass's --------------------------------------------------------------

    async def _read(self) -> None:
        raise NotImplementedError

    async def _to_client(self, message: Message) -> None:
        raise NotImplementedError

    async def _to_agent(self, message: Message) -> None:
        raise NotImplementedError

    async def _restarted(self, delay: float) -> None:
        raise NotImplementedError

    # Carrying actions out ---------------------------------------------------------------------------------

    def view(self, session_id: str) -> Any:
        """Return a live session as recorded so far."""
        assert self.sessions is not None  # noqa: S101 — no session is open before that
        return self.sessions.open[session_id].snapshot()

    def take(self, actions: Actions, message: Message | None = None, onward: Lane | None = None) -> list[Any]:
        """Carry out actions; `PASS` sends *message* to *onward*. Returns the futures of what is sent there."""
        records: dict[str, list[Message]] = {}
        durable: set[str] = set()
        out: list[tuple[Lane, Message]] = []
        later: list[HostAction] = []
        for action in actions:
            if isinstance(action, Pass | PassAs):
                if onward is not None and message is not None:
                    is_unchanged = isinstance(action, Pass)
                    out.append((onward, message if is_unchanged else self.core.sessions.for_client(message)))
            elif isinstance(action, RecordEvent):
                records.setdefault(action.session_id, []).append(action.event)
                if action.durable:
                    durable.add(action.session_id)
            elif isinstance(action, ToClient | ToAgent):
                out.append((self.to_client if isinstance(action, ToClient) else self.to_agent, action.message))
            else:
                later.append(action)
        synced = self._recorded(records, durable)
        sent = [(lane, lane.put(each, synced)) for lane, each in out]
        for action in later:
            self._do(action)
        self._set_timer()
        return [future for lane, future in sent if lane is onward]

    def _recorded(self, records: dict[str, list[Message]], durable: set[str]) -> asyncio.Future[Any] | None:
        for session_id, events in records.items():
            live = self.sessions.open.get(session_id) if self.sessions else None
            if live is None:
                continue
            told = record_events(live, events)
            _ = self.to_client.put(told) if told is not None else None
        if not durable:
            return None
        return self.spawn(self._synced(durable))

    async def _synced(self, session_ids: set[str]) -> None:
        for session_id in session_ids:
            live = self.sessions.open.get(session_id) if self.sessions else None
            if live is None:
                continue
            try:
                await self.in_thread(live.make_durable)
            except Exception as error:  # noqa: BLE001 — recording must not end the connection
                log_failure(f"session {session_id}: something is not durable", error)

    def _do(self, action: HostAction) -> None:
        if isinstance(action, Checkpoint):
            live = self.sessions.open.get(action.session_id) if self.sessions else None
            if live is not None:
                live.checkpoint()
        elif isinstance(action, RunBlocking):
            _ = self.spawn(self._work(action))
        elif isinstance(action, Restart):
            _ = self.spawn(self._restarted(action.delay))
        elif isinstance(action, GiveUp):
            log.error("%s", action.text)
        else:
            log.log(logging.WARNING if action.is_warning else logging.INFO, "%s", action.text)
            if action.words:
                log.debug("the agent: %s", action.words)

    async def _work(self, work: RunBlocking) -> None:
        try:
            sessions = await self.opened()
            result = await self.in_thread(work.run, sessions)
        except Exception as error:  # noqa: BLE001 — it is raised in the job
            self.take(self.core.done(work.number, error=error))
        else:
            self.take(self.core.done(work.number, result))

    async def opened(self) -> LiveSessions:
        """Return the live sessions."""
        assert self.sessions is not None  # noqa: S101 — given, unless a subclass opens them
        return self.sessions

    async def in_thread(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run *work*, which may block, in a thread. It runs to its end even if the caller is cancelled."""
        return await anyio.to_thread.run_sync(work, *arguments, limiter=self._threads)

    async def run(self, steps: Steps[_T], session_id: str | None = None) -> _T:
        """Run a job in the core with exclusive access to *session_id*. Returns or raises what it does."""
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        def followed() -> Steps[None]:
            try:
                result = yield from steps
            except Exception as error:  # noqa: BLE001 — the caller gets it
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        self.take(self.core.start(Job(followed(), session_id=session_id)))
        return await done

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that ends with this host."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _set_timer(self) -> None:
        seconds, loop = self.core.next_tick(), asyncio.get_running_loop()
        if seconds is None or (self._timer is not None and self._timer.when() <= loop.time() + seconds):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.take(self.core.tick(self.core.now()))

    async def end(self, *, drain: bool = True) -> None:
        """Cancel all tasks, save every session a last time and release it; even when cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        with anyio.CancelScope(shield=True):
            if drain:
                with anyio.move_on_after(1.0):
                    await self.to_client.drained()
            for task in list(self._tasks):
                task.cancel()
            for task in list(self._tasks):
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
            self.to_client.close()
            self.to_agent.close()
            if self.sessions is not None:
                await self.in_thread(self._finish, self.sessions)

    def _finish(self, sessions: LiveSessions) -> None:
        self.unsaved = [outcome for outcome in sessions.close() if outcome.status == "failed"]
        for outcome in self.unsaved:
            log.warning("session %s is not saved: %s", outcome.session_id, outcome.problem)
