"""Make events of what happens, in one place, so that events of a kind have the same content."""

from __future__ import annotations

import logging

from snapshot_plugin.live.outcome import describe, loggable
from snapshot_plugin.live.recovery import Recovered
from snapshot_plugin.manager.events import (
    EventBus,
    PartNotKept,
    SessionRecovered,
    SessionRestored,
    SnapshotCreated,
    SnapshotFailed,
    SnapshotSkipped,
)
from snapshot_plugin.manager.ports import Clock
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["Reporter"]

_log = logging.getLogger(__name__)


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
        """Nothing had to be written, or nothing may be."""
        self._bus.emit(SnapshotSkipped(session_id=session_id, at=self._clock(), reason=reason, trigger=trigger))

    def failed(
        self, session_id: str, operation: str, error: Exception, *, failures: int = 1, retry_in: float | None = None
    ) -> None:
        """Something could not be done."""
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
        """A part of an agent's context could not be saved."""
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
        """A session that ended without a proper stop was found."""
        self._bus.emit(
            SessionRecovered(
                session_id=recovered.session_id,
                at=self._clock(),
                records=recovered.records,
                seq=recovered.ref.seq if recovered.ref else None,
                problem=recovered.problem,
            )
        )
