"""The sessions of a manager: those whose objects it asks for snapshots, and those that its hosts record.

The former are saved at intervals, after `touch`, and after a failure, by the event loop's clock, which does not
jump. The latter (`LiveSessions`) are saved by threads of their own, and listed, saved and finished with the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import anyio.abc

from snapshot_plugin.errors import SessionLocked, SnapshotError
from snapshot_plugin.live.events import Event
from snapshot_plugin.live.outcome import Outcome
from snapshot_plugin.live.schedule import FlushThread, Schedule
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions, MakeReducer
from snapshot_plugin.manager.managed import ManagedSession, ManagerContext, source_of
from snapshot_plugin.manager.ports import Snapshottable
from snapshot_plugin.model.ids import check_session_id
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.store.arguments import check_kind
from snapshot_plugin.store.base import StoredSnapshot
from snapshot_plugin.store.hop import Abandoned, Deadline, in_thread

__all__ = ["AutoSnapshot", "ManagerSessions"]

_RELEASE = 1.0
"""Seconds for the release of a lease after a last save that was not finished in time."""


class AutoSnapshot:
    """One session and the task that saves it until it is stopped. The task never raises into the caller."""

    def __init__(
        self, session: Snapshottable, managed: ManagedSession, interval: float, context: ManagerContext
    ) -> None:
        self.session = session
        self.session_id = managed.session_id
        self.managed = managed
        self.relabel = managed.relabel
        self._context = context
        self._schedule = _schedule(interval, context)
        self._wake = anyio.Event()
        self._finished = anyio.Event()
        self._scope = anyio.CancelScope()
        self._stopping = False
        self._deadline = Deadline()

    def checkpoint(self) -> None:
        """Save soon; calls within ``event_debounce`` are coalesced into one save."""
        before = self._schedule.due
        self._schedule.touched(anyio.current_time())
        if self._schedule.due < before:
            self._wake.set()

    def set_interval(self, interval: float) -> None:
        """Change the interval."""
        self._schedule.interval = interval
        self._wake.set()

    async def save(self, trigger: str, tags: Sequence[str] = ()) -> SnapshotRef:
        """See `ManagedSession.save`."""
        return await self.managed.save(self.session, trigger, tags)

    async def save_as(self, trigger: str, tags: Sequence[str] = ()) -> Outcome:
        """Save now and return the outcome. Never raises."""
        try:
            return Outcome.saved(await self.save(trigger, tags))
        except Exception as error:  # noqa: BLE001 — the outcome says it
            self._context.report.failed(self.session_id, "save", error)
            return Outcome.failed(self.session_id, error)

    async def run(self) -> None:
        """Save whenever it is due, until `finish`."""
        try:
            with self._scope, self._deadline.applies():
                while not self._stopping:
                    await self._step()
        finally:
            self._finished.set()

    async def finish(self, *, save: bool, trigger: str, limit: float) -> Outcome:
        """Stop the task after the save in progress, and save once more if *save*; within *limit* seconds.

        A save that hangs is abandoned then; its thread may still complete it.
        """
        with anyio.move_on_after(limit), self._deadline.applies():
            self._deadline.set(limit)
            self._stopping = True
            self._wake.set()
            await self._finished.wait()
            not_asked = Outcome(session_id=self.session_id, status="not_asked")
            return await self.save_as(trigger) if save else not_asked
        self._scope.cancel()
        await self._finished.wait()
        outcome = Outcome.timed_out(self.session_id, limit)
        error = SnapshotError(outcome.problem, session_id=self.session_id)
        self._context.report.failed(self.session_id, "save", error)
        return outcome

    async def _step(self) -> None:
        wait = self._schedule.due - anyio.current_time()
        if wait <= 0:
            await self._attempt()
            return
        self._wake = anyio.Event()
        with anyio.move_on_after(wait):
            await self._wake.wait()

    async def _attempt(self) -> None:
        schedule = self._schedule
        schedule.begun()
        try:
            await self.save("auto")
        except Exception as error:  # noqa: BLE001 — no failure may end the task
            schedule.failed(anyio.current_time())
            self._context.report.failed(
                self.session_id, "save", error, failures=schedule.failures, retry_in=schedule.retry_in
            )
        else:
            schedule.saved(anyio.current_time())


def _schedule(interval: float, context: ManagerContext) -> Schedule:
    config, now = context.config, anyio.current_time()
    schedule = Schedule(
        now=now,
        interval=interval,
        debounce=config.event_debounce,
        retry_first=config.retry_first,
        retry_max=config.retry_max,
    )
    schedule.touched(now)  # save the start of a session, too
    return schedule


class ManagerSessions:
    """The sessions of one manager: one object per id, for as long as the manager uses it.

    Iteration yields those that are live: saved automatically, or recorded by a host.

    Args:
        context: what they share.
        emit: gets the events of hosts' sessions, from any thread.
    """

    def __init__(self, context: ManagerContext, emit: Callable[[Event], object]) -> None:
        self._context, self._emit = context, emit
        self._held: dict[str, ManagedSession] = {}
        self._auto: dict[str, AutoSnapshot] = {}
        self._hosts: list[LiveSessions] = []
        self._flushes = FlushThread(self._flush, interval=context.config.spool_flush_interval)
        context.live.recorded, context.live.flush_due = self._flushes.wake, self._flushes.due

    def __iter__(self) -> Iterator[AutoSnapshot | LiveSession]:
        return iter([*self._auto.values(), *self._hosted()])

    def get(self, session_id: str) -> AutoSnapshot | LiveSession | None:
        """The session with this id, if it is live."""
        return self._auto.get(_text(session_id)) or self.hosted(session_id)

    def all_live(self) -> list[LiveSession]:
        """Every session that is held or recorded here."""
        return [*(managed.live for managed in tuple(self._held.values())), *self._hosted()]

    def find(self, session_id: str) -> LiveSession | None:
        """The session with this id, if it is held or recorded here."""
        managed = self.held(session_id)
        return managed.live if managed is not None else self.hosted(session_id)

    def stop(self) -> None:
        """End the background threads."""
        self._flushes.stop()
        for host in self._hosts:
            host.stop()

    def refuse(self, why: str) -> None:
        """Let hosts begin and resume no more sessions."""
        for host in self._hosts:
            host.refused = why

    def _flush(self) -> None:
        for managed in tuple(self._held.values()):
            managed.live.flush()

    # Sessions of hosts -----------------------------------------------------------------------------------

    def record(self, reducer: MakeReducer, *, control: str | None) -> LiveSessions:
        """The sessions of a host, which reports to the event loop of this call."""
        context = self._context
        host = LiveSessions(
            context.store,
            reducer,
            emit=self._emit,
            clock=context.live.clock,
            reducers=context.live.reducers,
            flush_interval=context.config.spool_flush_interval,
        )
        host.control = control
        self._hosts = [*(each for each in self._hosts if not each.is_stopped), host]
        return host

    def hosted(self, session_id: str) -> LiveSession | None:
        """The session with this id, if a host records it now."""
        return next((live for live in self._hosted() if live.session_id == session_id), None)

    def _hosted(self) -> list[LiveSession]:
        return [live for host in self._hosts for live in tuple(host.open.values())]

    # Holding ---------------------------------------------------------------------------------------------

    def hold(self, session_id: str) -> ManagedSession:
        """The session with this id; the caller must release it with `drop`."""
        managed = self._held.get(session_id) or ManagedSession(check_session_id(session_id), self._context)
        self._held[session_id] = managed
        managed.holders += 1
        return managed

    async def drop(self, managed: ManagedSession, *, within: float | None = None) -> None:
        """Release a session. The last `drop` also releases the lease, even when cancelled.

        That takes *within* seconds at most; default: ``exit_timeout``.
        """
        managed.holders -= 1
        if managed.holders:
            return
        with anyio.CancelScope(shield=True):
            await managed.release(self._context.config.exit_timeout if within is None else within)
        if not managed.holders:
            self._held.pop(managed.session_id, None)
            managed.live.end()

    @asynccontextmanager
    async def holding(self, session_id: str) -> AsyncIterator[ManagedSession]:
        """`hold` the session for the ``async with`` block."""
        managed = self.hold(session_id)
        try:
            yield managed
        finally:
            await self.drop(managed)

    def held(self, session_id: str) -> ManagedSession | None:
        """The session with this id, if it is held here."""
        return self._held.get(_text(session_id))

    # Saving automatically --------------------------------------------------------------------------------

    def same(self, session: Snapshottable) -> AutoSnapshot | None:
        """The session that is saved automatically. Raises `SessionLocked` if another session object has its id."""
        auto = self._auto.get(session.session_id)
        if auto is not None and source_of(auto.session) is not source_of(session):
            raise SessionLocked(
                f"this manager has another live session with the id {session.session_id!r}",
                session_id=session.session_id,
                hint="stop the other one first, or fork it",
            )
        return auto

    async def start(
        self,
        session: Snapshottable,
        interval: float,
        tasks: anyio.abc.TaskGroup,
        *,
        baseline: StoredSnapshot | None = None,
    ) -> None:
        """Take the lease of *session*, and save it every *interval* seconds in a task of *tasks*."""
        managed = self.hold(session.session_id)
        try:
            await managed.try_to_take()
        except BaseException:
            await self.drop(managed)
            raise
        managed.continue_from(session, baseline)
        auto = self._auto[session.session_id] = AutoSnapshot(session, managed, interval, self._context)
        tasks.start_soon(auto.run)

    async def finish(self, session_id: str, *, save: bool, trigger: str, limit: float) -> Outcome:
        """Save the session once more if *save*, and release its lease, within *limit* seconds; even when cancelled.

        Never raises; returns the outcome. A save that hangs is abandoned then, because a disk may never answer.
        """
        auto = self._auto.pop(_text(session_id), None)
        if auto is None:
            return await self._finish_hosted(session_id, save=save, limit=limit)
        with anyio.CancelScope(shield=True):
            end = anyio.current_time() + limit
            outcome = await auto.finish(save=save, trigger=trigger, limit=limit)
            await self.drop(auto.managed, within=max(end - anyio.current_time(), _RELEASE))
        return outcome

    async def _finish_hosted(self, session_id: str, *, save: bool, limit: float) -> Outcome:
        host = next((host for host in self._hosts if session_id in host.open), None)
        if host is None:
            return Outcome(session_id=session_id, status="not_live")
        deadline = Deadline()
        with anyio.CancelScope(shield=True), deadline.applies(), suppress(Abandoned):
            deadline.set(limit)
            return await in_thread(partial(host.finish, session_id, save=save))
        return Outcome.timed_out(session_id, limit)


def _text(session_id: str) -> str:
    check_kind("session_id", session_id, str)
    return session_id
