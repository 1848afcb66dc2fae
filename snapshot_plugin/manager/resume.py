"""Resume a session: load it, or fall back, and report which."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

import anyio

from snapshot_plugin.errors import AgentNoLoadSupport, Damaged, SessionLocked, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.outcome import Outcome
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.manager.ports import (
    ContextProvider,
    Grade,
    Provider,
    RestoredAs,
    RestoringProvider,
    ResumableProvider,
    Snapshottable,
)
from snapshot_plugin.model.policy import BEFORE_FALLBACK
from snapshot_plugin.model.value import Value
from snapshot_plugin.store.base import Finding, StoredSnapshot

__all__ = ["BEFORE_FALLBACK", "Grade", "ResumeReport", "create_or_resume_session", "stop_session"]

SessionT = TypeVar("SessionT", bound=Snapshottable)
_log = logging.getLogger(__name__)


class ResumeReport(Value):
    """How a session was started.

    Grades: ``native-load`` and ``native-resume``: the provider loaded the session. ``context``: a new session was
    given the old conversation. ``fresh``: a new session without history; if there was a snapshot, `fell_back` says
    why it was not used. The manager's event, metric and log have the same grade.
    """

    session_id: str
    grade: Grade
    fell_back: str | None = None
    """Why a stored snapshot was not loaded."""
    seq: int | None = None
    """The snapshot that was loaded."""
    age: float | None = None
    """How old that snapshot was, in seconds."""
    messages: int = 0
    """How many messages it has."""
    skipped: tuple[Finding, ...] = ()
    """Newer snapshots that are damaged."""
    attached: bool = False
    """Whether the manager saves the session from now on."""
    notices: tuple[str, ...] = ()
    """What else the caller should know."""

    @property
    def resumed(self) -> bool:
        """True if the session has its history."""
        return self.grade != "fresh"

    def __str__(self) -> str:
        what = {
            "native-load": f"resumed with {self.messages} messages, {self.age or 0:.0f} s old",
            "native-resume": f"resumed with {self.messages} messages, {self.age or 0:.0f} s old",
            "context": f"restarted and given its {self.messages} messages as context",
            "fresh": "started fresh",
        }[self.grade]
        reason = f" because {self.fell_back}" if self.fell_back else ""
        damage = f"; {len(self.skipped)} damaged snapshots skipped" if self.skipped else ""
        return f"{self.session_id}: {what}{reason}{damage}" + "".join(f"; {notice}" for notice in self.notices)


async def create_or_resume_session(
    provider: Provider[SessionT],
    session_id: str,
    config: Any,
    manager: SnapshotManager,
    *,
    require_load: bool = False,
) -> tuple[SessionT, ResumeReport]:
    """Start the session, from its newest snapshot if there is one and the provider can; the report says how.

    The spool of a killed process is recovered first. If the newest snapshot is damaged, the newest intact one is
    used; if none is intact, the session starts fresh. Snapshots from before a fallback are kept, tagged
    ``before-fallback``.
    The session is attached to *manager*, if its settings enable persistence.

    Args:
        provider: starts sessions; a `ResumableProvider` can load them, a `ContextProvider` can give them a
        transcript, a `RestoringProvider` does the best possible in one start.
        session_id: our id of the session.
        config: passed through to the provider.
        manager: keeps the session saved from now on.
        require_load: refuse to fall back.

    Raises:
        AgentNoLoadSupport: there is a snapshot, the provider cannot load it, and *require_load* is set.
        Damaged: no snapshot is intact, and *require_load* is set.
        SessionLocked: the session is live already, here or elsewhere. No agent was started.
        InvalidInput: the manager is not open, or the process is ending. No agent was started.
        SnapshotError: the store cannot be read (a missing key, a newer version); starting fresh would hide it.
        Exception: what the provider raises; nothing was changed.
    """
    if manager.config.enable_persistence:
        manager.check_open(session_id)
    async with manager.leasing(session_id) as managed, managed.starting:
        if session_id in manager.live:
            raise SessionLocked(f"session {session_id!r} is live in this manager", session_id=session_id)
        await managed.try_to_take()
        before = anyio.current_time()
        found, problem = await _newest(manager, session_id, require_load=require_load)
        started = await _start(provider, session_id, config, found, require_load=require_load)
        try:
            report = _report(session_id, found, started, problem)
            if found is not None:
                if started.fell_back:
                    await _preserve(manager, found)
                took = anyio.current_time() - before
                event = manager.report.restored(
                    found, grade=started.grade, duration=took, fell_back=started.fell_back
                )
                report = report.evolve(age=event.age)
            if report.fell_back:
                _log.warning("session %s", report)
            return started.session, await _attach(started, report, found, manager)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await provider.stop_session(started.session)
            raise


async def stop_session(provider: Provider[SessionT], session: SessionT, manager: SnapshotManager) -> Outcome:
    """Save the session a last time, if the settings say so, detach it, and let the provider stop it."""
    outcome = await manager.session_stopped(session.session_id)
    await provider.stop_session(session)
    return outcome


async def _newest(
    manager: SnapshotManager, session_id: str, *, require_load: bool
) -> tuple[StoredSnapshot | None, str | None]:
    try:
        return await manager.read(session_id), None
    except SnapshotNotFound:
        return None, None
    except Damaged as error:
        if require_load:
            raise
        return None, f"no snapshot is whole: {error.message}"


async def _start(
    provider: Provider[Any], session_id: str, config: Any, found: StoredSnapshot | None, *, require_load: bool
) -> RestoredAs[Any]:
    if found is None:
        return RestoredAs(await provider.create_session(session_id, config), "fresh")
    if isinstance(provider, RestoringProvider):
        return await provider.restore_session(session_id, config, found.snapshot, require_load=require_load)
    try:
        return RestoredAs(await _load(provider, session_id, config, found), "native-load")
    except AgentNoLoadSupport as error:
        if require_load:
            raise
        why = error.message
    if isinstance(provider, ContextProvider):
        return RestoredAs(await provider.continue_session(session_id, config, found.snapshot), "context", why)
    return RestoredAs(await provider.create_session(session_id, config), "fresh", why)


async def _load(provider: Provider[Any], session_id: str, config: Any, found: StoredSnapshot) -> Any:
    if not isinstance(provider, ResumableProvider):
        raise AgentNoLoadSupport(f"{type(provider).__name__} cannot load sessions", session_id=session_id)
    return await provider.load_session(session_id, config, found.snapshot)


async def _preserve(manager: SnapshotManager, found: StoredSnapshot) -> None:
    try:
        await manager.store.save(found.snapshot, trigger="fallback", tags=(BEFORE_FALLBACK,))
    except SnapshotError as error:
        manager.report.failed(found.ref.session_id, "save", error)


def _report(
    session_id: str, found: StoredSnapshot | None, started: RestoredAs[Any], problem: str | None
) -> ResumeReport:
    return ResumeReport(
        session_id=session_id,
        grade=started.grade,
        fell_back=started.fell_back or problem,
        seq=found.ref.seq if found else None,
        messages=len(found.snapshot.messages) if found else 0,
        skipped=found.skipped if found else (),
    )


async def _attach(
    started: RestoredAs[Any], report: ResumeReport, found: StoredSnapshot | None, manager: SnapshotManager
) -> ResumeReport:
    baseline = found if started.grade.startswith("native") else None
    attached = await manager.session_started(started.session, baseline=baseline)
    off = () if attached else ("it is not saved by itself: enable_persistence is off",)
    return report.evolve(attached=attached, notices=off)
