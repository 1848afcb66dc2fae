"""The manager: saves live sessions automatically, and restores sessions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc

from snapshot_plugin.errors import InvalidInput, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.blocking import blocking_store
from snapshot_plugin.live.events import Reporter
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.outcome import Outcome, SnapshotAllReport
from snapshot_plugin.live.place import place_of
from snapshot_plugin.live.ports import LiveContext, Reduce
from snapshot_plugin.live.recovery import Recovered, recover, recover_if_abandoned
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions, MakeReducer
from snapshot_plugin.manager.branches import branched, renamed, save_branch
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.config_values import seconds
from snapshot_plugin.manager.events import EventBus
from snapshot_plugin.manager.leases import watch_leases
from snapshot_plugin.manager.managed import ManagedSession, ManagerContext, SaveSlots
from snapshot_plugin.manager.opening import open_place
from snapshot_plugin.manager.ports import Clock, Snapshottable, check_session, utc_now
from snapshot_plugin.manager.predeploy import save_everyone, serve_sessions
from snapshot_plugin.manager.retention import Retention
from snapshot_plugin.manager.sessions import ManagerSessions
from snapshot_plugin.manager.signals import SaveOnSignal, end_tasks, run_for
from snapshot_plugin.manager.telemetry import EventMetrics, opentelemetry_subscriber
from snapshot_plugin.model.ids import check_session_id, new_id
from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.arguments import check_kind
from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot
from snapshot_plugin.store.hop import in_thread, is_in_event_loop

__all__ = ["SnapshotManager"]

_log = logging.getLogger(__name__)
_OPEN = "use it as: async with SnapshotManager(store) as manager"
_LAST_SAVES = 8
"""How many sessions are saved at once when the manager closes, if `max_concurrent_saves` is less."""
_SESSIONS_PER_LIMIT = 500
"""``exit_timeout`` is for so many sessions; more get more time, in proportion."""
_SUBSCRIBERS_GRACE = 1.0  # seconds that async subscribers have when the manager closes


class SnapshotManager:
    """Saves live sessions automatically, and restores sessions. An async context manager that owns its tasks.

    Background work never raises into the caller: a failure is an event, a metric and a retry. Explicit calls
    (`snapshot`, `restore`, `fork`) raise.

    Args:
        store: an open store, which the caller closes; or a directory or URL, which the manager opens and closes;
            default: ``config.storage_path``.
        config: the settings. Without settings and without a store, sessions are not saved automatically.
        clock: the time of day, for the times of events. It does not schedule anything.
        reducers: by provider type, functions that apply spooled records to a snapshot, for `recover`.
        meter_provider: OpenTelemetry's; default: the process's own, if its API is installed.
    """

    def __init__(
        self,
        store: SnapshotStore | str | PathLike[str] | None = None,
        config: SnapshotConfig | None = None,
        *,
        clock: Clock = utc_now,
        reducers: Mapping[str, Reduce] | None = None,
        meter_provider: Any = None,
    ) -> None:
        is_chosen = store is not None or config is not None  # nobody asked for saves to the user's own store
        self.config = config or SnapshotConfig(enable_persistence=is_chosen)
        self.store, self._owns_store = open_place(store, self.config)
        self.events, self.metrics = EventBus(), EventMetrics()
        self.report, self.clock = Reporter(self.events.emit, clock), clock
        self._reducers = dict(reducers or {})
        self._place = place_of(self.store)
        self._context = context = self._new_context()
        self._sessions = sessions = ManagerSessions(context, self.events.emit)
        self._starting = anyio.Lock()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._control: str | None = None
        self._refused = ""
        """Why no session can be started any more; empty while they can."""
        self.unsaved: tuple[Outcome, ...] = ()
        """The sessions that were not saved when the manager closed, or when a signal ended the process."""
        self._is_warned = False
        self._deadline = context.deadline
        self.retention = Retention(self.store, self.config, self.report, clock, context.swept, held=sessions.held)
        self.events.subscribe(self.metrics)
        self.events.subscribe(self.retention)
        if telemetry := opentelemetry_subscriber(meter_provider):
            self.events.subscribe(telemetry)

    @property
    def has_spool(self) -> bool:
        """Whether the store has a live place: without one there is neither spool nor lease, only snapshots."""
        return self._place is not None

    @property
    def live(self) -> tuple[str, ...]:
        """The ids of the sessions that are live here."""
        return tuple(live.session_id for live in self._sessions)

    @property
    def is_open(self) -> bool:
        """Whether sessions can be started: inside ``async with``, until `close` or a signal."""
        return self._tasks is not None and not self._refused

    def check_open(self, session_id: str | None = None) -> anyio.abc.TaskGroup:
        """The tasks of the manager. Raises `InvalidInput` if no session can be started, and says why."""
        if self._refused:
            raise InvalidInput(self._refused, session_id=session_id, hint="start it in another process")
        if self._tasks is None:
            raise InvalidInput("the manager is not open", session_id=session_id, hint=_OPEN)
        return self._tasks

    def _refuse_more(self, why: str) -> None:
        """Start no more sessions, and hurry: a late event loop delays nobody any more."""
        self._refused = self._refused or why
        self._sessions.refuse(self._refused)
        self._context.saves.count = max(self._context.saves.count, _LAST_SAVES)

    def _exit_limit(self) -> float:
        """Seconds for the last saves of all sessions that are live now."""
        return self.config.exit_timeout * max(1.0, len(self.live) / _SESSIONS_PER_LIMIT)

    @property
    def watches_signals(self) -> bool:
        """True if this manager, once open, saves all sessions on SIGTERM or SIGINT."""
        return self.config.enable_persistence and self.config.snapshot_on_signal and SaveOnSignal.is_possible()

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise InvalidInput("this manager was opened before", hint="make another SnapshotManager")
        self._tasks = await anyio.create_task_group().__aenter__()
        try:
            with self._deadline.applies():
                await self._start_tasks(self._tasks)
        except BaseException as error:
            await end_tasks(self._tasks, error)
            raise
        return self

    async def _start_tasks(self, tasks: anyio.abc.TaskGroup) -> None:
        self.events.open(tasks)
        if self.store.capabilities.several_machines and self._place is not None:
            tasks.start_soon(watch_leases, self._sessions.all_live, self.report)
        tasks.start_soon(self.retention.run)
        if self._place is not None:
            control = await tasks.start(serve_sessions, self._sessions.get, self.report)
            self._control = str(control) if control else None
        if self.watches_signals:
            tasks.start_soon(SaveOnSignal(self._save_before_end).run)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        finally:
            if self._tasks is not None:
                await end_tasks(self._tasks, error)
            if self._owns_store:
                await self.store.aclose()

    async def close(self) -> Sequence[Outcome]:
        """Save every live session (if ``snapshot_on_exit``), release all leases, and return the outcomes.

        Finishes within ``exit_timeout`` and a few seconds, even when cancelled, and if the disk hangs: then the
        outcome is ``timeout``, and the save is abandoned in its thread. No session can be started afterwards.
        `unsaved` has the outcomes of the sessions that are not saved.
        """
        self._refuse_more("the manager is closed")
        with self._deadline.applies():
            self._deadline.set(self._exit_limit())
            outcomes = await self._finish_all(save=self.config.snapshot_on_exit, trigger="exit")
            await self.retention.aclose()
            await self.events.aclose(_SUBSCRIBERS_GRACE)
        return outcomes

    # Saving ----------------------------------------------------------------------------------------------

    async def snapshot(
        self, session: Snapshottable, *, trigger: str = "manual", tags: Sequence[str] = ()
    ) -> SnapshotRef:
        """Save *session* now; durable on return. Concurrent calls are coalesced into the next save.

        Raises:
            SessionLocked: another process, or another session object here, has this id.
            SnapshotError: the session's ``snapshot()`` failed, or the store refused. Nothing was lost: try again.
        """
        check_session(session, tags)
        self._sessions.same(session)
        try:
            if ref := await self._save_live(session.session_id, trigger, tags):
                return ref
            async with self.leasing(session.session_id) as managed:
                ref = await managed.save(session, trigger, tags)
                await self.retention.apply(session.session_id)
        except SnapshotError as error:
            self.report.failed(session.session_id, "save", error)
            raise
        return ref

    async def _save_live(self, session_id: str, trigger: str, tags: Sequence[str] = ()) -> SnapshotRef | None:
        """Save a session that is live in this manager; None if it is not."""
        live = self._sessions.get(session_id)
        if isinstance(live, LiveSession):
            return await in_thread(live.save_or_raise, trigger, tags)
        return await live.save(trigger, tags) if live is not None else None

    async def start_auto_snapshot(
        self, session: Snapshottable, interval: float | None = None, *, baseline: StoredSnapshot | None = None
    ) -> None:
        """Save *session* automatically from now on, whenever it changed. A second call changes the interval.

        Args:
            session: the live session.
            interval: seconds; default: ``config.snapshot_interval``.
            baseline: what was restored, so that an unchanged session is not saved again.

        Raises:
            InvalidInput: the interval is not more than zero, or the manager is not open.
            SessionLocked: another process, or another session object here, has this id.
        """
        every = self.config.snapshot_interval if interval is None else seconds(interval)
        check_session(session)
        tasks = self.check_open(session.session_id)
        if self._sessions.hosted(session.session_id):
            return  # a host records it, and has it saved after every turn
        async with self._starting:
            if auto := self._sessions.same(session):
                auto.set_interval(every)
            else:
                await self._sessions.start(session, every, tasks, baseline=baseline)
                if self._refused:  # since a moment ago: nobody would save it
                    await self._finish(session.session_id, save=False, trigger="exit")
                    self.check_open(session.session_id)
                self.retention.started(session.session_id)

    async def stop_auto_snapshot(self, session_id: str, *, save: bool | None = None) -> Outcome:
        """Stop saving the session automatically, after one last save if *save*; default: ``snapshot_on_exit``.

        Never raises; see the outcome. A session that was never started is ``not_live``.
        """
        wanted = self.config.snapshot_on_exit if save is None else save
        outcome = await self._finish(session_id, save=wanted, trigger="exit")
        await self.retention.apply(session_id, exactly=True)
        return outcome

    async def session_started(self, session: Snapshottable, *, baseline: StoredSnapshot | None = None) -> bool:
        """Attach a session that a provider has started, if ``enable_persistence``. Returns True if attached."""
        check_session(session)
        if not self.config.enable_persistence:
            self.report.skipped(session.session_id, reason="persistence_off")
            return False
        await self.start_auto_snapshot(session, baseline=baseline)
        return True

    async def session_stopped(self, session_id: str) -> Outcome:
        """Detach a session that a provider is about to stop; saves it first, if ``snapshot_on_exit`` is on."""
        return await self.stop_auto_snapshot(session_id)

    def touch(self, session_id: str) -> None:
        """Save the session soon, after something significant. Ignored if the session is not live here."""
        if live := self._sessions.get(session_id):
            live.checkpoint()

    def set_current_task(self, session_id: str, task: str | None) -> None:
        """Store what a live session is working on in its snapshots. `SnapshotNotFound` if it is not live."""
        check_kind("task", task, str, optional=True)  # otherwise no later save of the session would succeed
        live = self._sessions.hosted(session_id) or self._sessions.held(session_id)
        if live is None:
            raise SnapshotNotFound(f"session {session_id!r} is not live in this manager", session_id=session_id)
        live.set_current_task(task)
        self.touch(session_id)

    def recording(self, reducer: MakeReducer) -> LiveSessions:
        """Sessions that a host records from events, as sessions of this manager; see `LiveSessions`.

        They are listed in `live`, saved by `snapshot_all` and finished by `close`; what happens to them becomes
        events of this manager. Raises `InvalidInput` if the manager is not open.
        """
        self.check_open()
        return self._sessions.record(reducer, control=self._control)

    def seconds_left(self, session_id: str) -> float:
        """For how long no other machine can own the session: check it before a tool that must not run twice.

        Infinite where leases do not expire, as on a disk; 0 if the session is not live here. If the database does
        not answer, the time runs out, `spool` returns False, saves fail, and a `SnapshotFailed` event with the
        operation ``lease`` tells. Stop the agent then: it may go on once this is more than 0 again, unless the
        session was taken over (code ``fenced``).
        """
        live = self._sessions.find(session_id)
        return live.seconds_left if live is not None and live.hold is not None else 0.0

    async def spool(self, session_id: str, record: dict[str, Any]) -> bool:
        """Spool a record before you pass its content on. Never blocks the event loop; returns within seconds.

        Change the session first, then spool the record: a snapshot that is taken meanwhile counts as containing it.
        Records of one session are spooled in the order of the calls.

        True: the record survives ``kill -9``, and recovery applies it. False: only the next snapshot is certain to
        contain it, because the session is not live here, the store has no place for spools, or the disk or server
        refused or did not answer in time.

        Raises:
            InvalidInput: the record is not JSON, or the manager is not open.
        """
        if self._tasks is None:
            raise InvalidInput("the manager is not open", session_id=session_id, hint=_OPEN)
        managed = self._sessions.held(session_id)
        return managed is not None and await managed.spool(record, self._tasks)

    def record(self, session_id: str, record: dict[str, Any]) -> bool:
        """As `spool`, as a plain call: for threads, and for stores on a disk, where it is one small write.

        In an event loop, a store that several machines share takes the record without waiting for its server: the
        answer is False, and only `spool` can tell whether it was stored.

        Raises:
            InvalidInput: the record is not JSON.
        """
        managed = self._sessions.held(session_id)
        if managed is None:
            return False
        if self._tasks is None or not self.store.capabilities.several_machines or not is_in_event_loop():
            return managed.live.record(record)
        if not self._is_warned:
            self._is_warned = True
            _log.warning("manager.record() is not confirmed in an event loop: await manager.spool() instead")
        managed.spool_soon(record, self._tasks)
        return False

    async def snapshot_all(
        self,
        tag: str = "pre-deploy",
        *,
        timeout: float = 30.0,  # noqa: ASYNC109 — reported, not raised
    ) -> SnapshotAllReport:
        """Save every live session of this store under *tag*, including the sessions of other processes.

        Other owners are asked through their control sockets. A problem with one session never raises: the report
        lists the outcome of each, and ``report.ok`` is true if all are saved. A session that is not finished after
        *timeout* counts as not saved.
        """
        check_kind("tag", tag, str)
        own = {live.session_id: live for live in self._sessions}
        outcomes = await save_everyone(own, self._place, tag=tag, within=seconds(timeout))
        return SnapshotAllReport(tag=tag, outcomes=tuple(outcomes))

    # Restoring -------------------------------------------------------------------------------------------

    async def restore(self, session_id: str, *, at: int | None = None, strict: bool = False) -> StoredSnapshot:
        """The newest intact snapshot, including a dead owner's spool; or the one numbered *at*.

        Raises what `SnapshotStore.read` raises: not found, no intact snapshot, a newer version, a missing key.
        """
        started = anyio.current_time()
        found = await self.read(session_id, at=at, strict=strict)
        self.report.restored(found, grade="snapshot", duration=anyio.current_time() - started)
        return found

    async def read(self, session_id: str, *, at: int | None = None, strict: bool = False) -> StoredSnapshot:
        """Like `restore`, but emits no `SessionRestored`: the caller reports the restore itself."""
        check_session_id(session_id)
        try:
            if at is None:
                recovered = await recover_if_abandoned(self.store, session_id, self._reducers, self.clock())
                if recovered:
                    self.report.recovered(recovered)
            return await self.store.read(session_id, at=at, strict=strict)
        except SnapshotError as error:
            if not isinstance(error, SnapshotNotFound):
                self.report.failed(session_id, "restore", error)
            raise

    async def list(self) -> Sequence[SnapshotMeta]:
        """The newest snapshot of every session, last changed first; damaged ones as damaged."""
        return await self.store.list()

    async def fork(
        self,
        session_id: str,
        *,
        messages: int | None = None,
        seq: int | None = None,
        as_id: str | None = None,
        at: int | None = None,
    ) -> SessionSnapshot:
        """Branch a session: save a copy under a new id, ready to be loaded. The old session is not changed.

        Args:
            session_id: the session to branch from. If it is live here, it is saved first.
            messages: how many messages the fork starts with; default: all.
            at: the old name of *messages*, deprecated.
            seq: the snapshot to fork from; default: the newest.
            as_id: the new session's id; default: a new one.
        """
        messages = messages if at is None else renamed(at)
        if seq is None:
            await self._save_live(session_id, "fork")
        as_id, now = as_id or new_id(), self.clock()
        new = await branched(self.store, session_id, as_id=as_id, now=now, seq=seq, messages=messages)
        return await save_branch(self.store, new, trigger="fork")

    async def recover(self) -> Sequence[Recovered]:
        """Find the sessions that ended without a clean stop, and save the records in their spools as snapshots.

        Idempotent, and safe to call at any time. Sessions with a live owner are left alone.
        """
        found = await recover(self.store, reducers=self._reducers, now=self.clock())
        for recovered in found:
            self.report.recovered(recovered)
        return found

    def add_reducer(self, provider_type: str, reducer: Reduce) -> None:
        """Register how spooled records of *provider_type* are applied; an existing reducer is not replaced."""
        self._reducers.setdefault(provider_type, reducer)

    def leasing(self, session_id: str) -> AbstractAsyncContextManager[ManagedSession]:
        """Hold a session for the ``async with`` block. Its lease is not taken before `ManagedSession.take`."""
        return self._sessions.holding(check_session_id(session_id))

    def _new_context(self) -> ManagerContext:
        in_loop = self.events.in_loop
        live = LiveContext(
            store=blocking_store(self.store),
            place=self._place,
            shared=self.store.capabilities.several_machines,
            owner=lambda: Owner.this_process(since=self.clock(), control=self._control),
            report=self.report,
            clock=self.clock,
            reducers=self._reducers,
            touch=lambda live: in_loop(self.touch, live.session_id),
        )
        saves = SaveSlots(self.config.max_concurrent_saves)
        return ManagerContext(self.store, self.config, self.report, saves, live, in_loop)

    async def _finish(self, session_id: str, *, save: bool, trigger: str, limit: float | None = None) -> Outcome:
        limit = self.config.exit_timeout if limit is None else limit
        return await self._sessions.finish(session_id, save=save, trigger=trigger, limit=limit)

    async def _finish_all(self, *, save: bool, trigger: str) -> Sequence[Outcome]:
        """Finish all sessions concurrently, even when cancelled."""
        outcomes: dict[str, Outcome] = {}
        limit = self._exit_limit()

        async def finish(session_id: str) -> None:
            outcomes[session_id] = await self._finish(session_id, save=save, trigger=trigger, limit=limit)

        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as finishing:
                for session_id in self.live:
                    finishing.start_soon(finish, session_id)
        self._sessions.stop()
        failed = [each for each in outcomes.values() if each.status in ("failed", "timeout")]
        self.unsaved = (*self.unsaved, *failed)
        if failed:
            _log.error("%d of %d sessions were not saved, first: %s", len(failed), len(outcomes), failed[0])
        return [outcomes[session_id] for session_id in sorted(outcomes)]

    async def _save_before_end(self) -> bool:
        """Save all sessions because a signal ends the process; returns whether all are saved."""
        self._refuse_more("the process is ending because of a signal")
        if self._tasks is None:
            return True
        within = self._exit_limit() + _SUBSCRIBERS_GRACE
        work = partial(self._finish_all, save=True, trigger="signal")
        return await run_for(within, self._tasks, work) and not self.unsaved
