"""The live sessions of one manager: attached, saved by themselves, and let go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import anyio
import anyio.abc

from snapshot_plugin.errors import SessionLocked, SnapshotError, StoreUnavailable
from snapshot_plugin.manager.auto import AutoSnapshot, Schedule
from snapshot_plugin.manager.claim import Claims
from snapshot_plugin.manager.live import LiveSession, Workshop, source_of
from snapshot_plugin.manager.outcome import Outcome
from snapshot_plugin.manager.ports import Snapshottable
from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["AttachedSessions"]


class AttachedSessions:
    """One task per session that saves it. Letting go never raises and always says what became of the session."""

    def __init__(self, shop: Workshop, claims: Claims) -> None:
        self._shop = shop
        self._claims = claims
        self._by_id: dict[str, AutoSnapshot] = {}

    def __iter__(self) -> Iterator[LiveSession]:
        return iter([auto.live for auto in self._by_id.values()])

    def get(self, session_id: str) -> AutoSnapshot | None:
        """The session's task, if it is attached."""
        return self._by_id.get(session_id)

    def same(self, session: Snapshottable) -> AutoSnapshot | None:
        """As `get`, but `SessionLocked` if another session object has the id."""
        auto = self._by_id.get(session.session_id)
        if auto is not None and source_of(auto.live.session) is not source_of(session):
            raise SessionLocked(
                f"this manager has another live session with the id {session.session_id!r}",
                session_id=session.session_id,
                hint="stop the other one first, or fork it",
            )
        return auto

    async def attach(
        self,
        session: Snapshottable,
        interval: float,
        tasks: anyio.abc.TaskGroup,
        *,
        baseline: StoredSnapshot | None = None,
    ) -> None:
        """Claim *session* and save it every *interval* seconds from now on, in a task of *tasks*."""
        claim = self._claims.hold(session.session_id)
        try:
            await claim.secure()
        except StoreUnavailable as error:
            # A disk that refuses now may take the next save; the agent starts all the same.
            self._shop.report.failed(session.session_id, "spool", error)
        except BaseException:
            await self._claims.drop(claim)
            raise
        live = LiveSession(session, self._shop, claim, baseline=baseline)
        now = anyio.current_time()
        schedule = Schedule(interval=interval, config=self._shop.config, now=now)
        schedule.touched(now)  # the beginning of a session is worth saving
        auto = AutoSnapshot(live, schedule, failed=self._save_failed)
        self._by_id[session.session_id] = auto
        tasks.start_soon(auto.run)

    async def detach(self, session_id: str, *, save: bool, trigger: str) -> Outcome:
        """Stop the session's task, save it once more if *save*, and free it. Happens even when cancelled."""
        auto = self._by_id.pop(session_id, None)
        if auto is None:
            return Outcome(session_id=session_id, status="not_live")
        with anyio.CancelScope(shield=True):
            outcome = await self._finish(auto, save=save, trigger=trigger)
            await self._claims.drop(auto.live.claim)
        return outcome

    async def detach_all(self, *, save: bool, trigger: str) -> Sequence[Outcome]:
        """Detach every session, all at once."""
        outcomes: list[Outcome] = []

        async def detach(session_id: str) -> None:
            outcomes.append(await self.detach(session_id, save=save, trigger=trigger))

        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as detaching:
                for session_id in tuple(self._by_id):
                    detaching.start_soon(detach, session_id)
        return sorted(outcomes, key=lambda outcome: outcome.session_id)

    async def try_save(self, live: LiveSession, trigger: str, tags: Sequence[str] = ()) -> Outcome:
        """Save, and say what became of it instead of raising."""
        try:
            return Outcome.saved(await live.save(trigger, tags))
        except Exception as error:  # noqa: BLE001 — the outcome says it
            self._shop.report.failed(live.session_id, "save", error)
            return Outcome.failed(live.session_id, error)

    async def _finish(self, auto: AutoSnapshot, *, save: bool, trigger: str) -> Outcome:
        session_id, limit = auto.live.session_id, self._shop.config.exit_timeout
        with anyio.move_on_after(limit):
            await auto.stop()
            if not save:
                return Outcome(session_id=session_id, status="not_asked")
            return await self.try_save(auto.live, trigger)
        await auto.abort()
        outcome = Outcome.timed_out(session_id, limit)
        self._shop.report.failed(session_id, "save", SnapshotError(outcome.problem, session_id=session_id))
        return outcome

    def _save_failed(self, session_id: str, error: Exception, schedule: Schedule) -> None:
        self._shop.report.failed(session_id, "save", error, failures=schedule.failures, retry_in=schedule.retry_in)
