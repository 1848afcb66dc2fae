"""Sessions that a manager saves automatically: at intervals, after `touch`, and again after a failure.

Times are those of the event loop's clock, which does not jump.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import anyio
import anyio.abc

from snapshot_plugin.errors import SessionLocked, SnapshotError
from snapshot_plugin.live.outcome import Outcome
from snapshot_plugin.live.schedule import Schedule
from snapshot_plugin.manager.managed import ManagedSession, ManagedSessions, ManagerContext, source_of
from snapshot_plugin.manager.ports import Snapshottable
from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["AutoSnapshot", "AutoSnapshots"]


class AutoSnapshot:
    """One session and the task that saves it until it is stopped. The task never raises into the caller."""

    def __init__(
        self, session: Snapshottable, managed: ManagedSession, schedule: Schedule, context: ManagerContext
    ) -> None:
        self.session = session
        self.session_id = managed.session_id
        self.managed = managed
        self._schedule = schedule
        self._context = context
        self._wake = anyio.Event()
        self._finished = anyio.Event()
        self._scope = anyio.CancelScope()
        self._stopping = False

    def checkpoint(self) -> None:
        """Something significant happened: save soon, once for all of it."""
        before = self._schedule.due
        self._schedule.touched(anyio.current_time())
        if self._schedule.due < before:
            self._wake.set()

    def set_interval(self, interval: float) -> None:
        """Save this often from now on."""
        self._schedule.interval = interval
        self._wake.set()

    def relabel(self, request: Mapping[str, Any]) -> None:
        """See `LiveSession.relabel`."""
        self.managed.live.relabel(request)

    async def save_as(self, trigger: str, tags: Sequence[str] = ()) -> Outcome:
        """Save now and return the outcome. Never raises."""
        try:
            return Outcome.saved(await self.managed.save(self.session, trigger, tags))
        except Exception as error:  # noqa: BLE001 — the outcome says it
            self._context.report.failed(self.session_id, "save", error)
            return Outcome.failed(self.session_id, error)

    async def run(self) -> None:
        """Save whenever it is due, until `finish`."""
        try:
            with self._scope:
                while not self._stopping:
                    await self._step()
        finally:
            self._finished.set()

    async def finish(self, *, save: bool, trigger: str) -> Outcome:
        """End the task, after the save that is under way, and save once more if *save*; within ``exit_timeout``."""
        limit = self._context.config.exit_timeout
        with anyio.move_on_after(limit):
            self._stopping = True
            self._wake.set()
            await self._finished.wait()
            not_asked = Outcome(session_id=self.session_id, status="not_asked")
            return await self.save_as(trigger) if save else not_asked
        self._scope.cancel()  # a save under way either happens whole or not at all
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
            await self.managed.save(self.session, "auto")
        except Exception as error:  # noqa: BLE001 — no failure may end the task
            schedule.failed(anyio.current_time())
            self._context.report.failed(
                self.session_id, "save", error, failures=schedule.failures, retry_in=schedule.retry_in
            )
        else:
            schedule.saved(anyio.current_time())


class AutoSnapshots:
    """All sessions that are saved automatically. `finish` never raises; it returns the outcome."""

    def __init__(self, context: ManagerContext, sessions: ManagedSessions) -> None:
        self._context = context
        self._sessions = sessions
        self._by_id: dict[str, AutoSnapshot] = {}

    def __iter__(self) -> Iterator[AutoSnapshot]:
        return iter(tuple(self._by_id.values()))

    def get(self, session_id: str) -> AutoSnapshot | None:
        """The session with this id, if it is saved automatically."""
        return self._by_id.get(session_id)

    def same(self, session: Snapshottable) -> AutoSnapshot | None:
        """As `get`, but `SessionLocked` if another session object has the id."""
        auto = self._by_id.get(session.session_id)
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
        """Take *session*'s lease and save it every *interval* seconds from now on, in a task of *tasks*."""
        managed = self._sessions.hold(session.session_id)
        try:
            await managed.try_to_take()
        except BaseException:
            await self._sessions.drop(managed)
            raise
        managed.continue_from(session, baseline)
        auto = AutoSnapshot(session, managed, self._schedule(interval), self._context)
        self._by_id[session.session_id] = auto
        tasks.start_soon(auto.run)

    def _schedule(self, interval: float) -> Schedule:
        config, now = self._context.config, anyio.current_time()
        schedule = Schedule(
            now=now,
            interval=interval,
            debounce=config.event_debounce,
            retry_first=config.retry_first,
            retry_max=config.retry_max,
        )
        schedule.touched(now)  # the beginning of a session is worth saving
        return schedule

    async def finish(self, session_id: str, *, save: bool, trigger: str) -> Outcome:
        """End the session's task, save once more if *save*, release the lease. Happens even when cancelled."""
        auto = self._by_id.pop(session_id, None)
        if auto is None:
            return Outcome(session_id=session_id, status="not_live")
        with anyio.CancelScope(shield=True):
            outcome = await auto.finish(save=save, trigger=trigger)
            await self._sessions.drop(auto.managed)
        return outcome

    async def finish_all(self, *, save: bool, trigger: str) -> Sequence[Outcome]:
        """Finish all sessions concurrently."""
        outcomes: list[Outcome] = []

        async def finish(session_id: str) -> None:
            outcomes.append(await self.finish(session_id, save=save, trigger=trigger))

        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as finishing:
                for session_id in tuple(self._by_id):
                    finishing.start_soon(finish, session_id)
        return sorted(outcomes, key=lambda outcome: outcome.session_id)
