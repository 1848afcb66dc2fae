"""What happens to sessions, as events; the `Reporter` makes them, and any thread may call it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from snapshot_plugin.live.outcome import describe, loggable
from snapshot_plugin.model.value import Timestamp, Value

if TYPE_CHECKING:
    from snapshot_plugin.live.recovery import Recovered
    from snapshot_plugin.model.meta import SnapshotRef
    from snapshot_plugin.store.base import StoredSnapshot

__all__ = [
    "Event",
    "PartNotKept",
    "Reporter",
    "SessionRecovered",
    "SessionRestored",
    "SnapshotCreated",
    "SnapshotFailed",
    "SnapshotSkipped",
    "log_event",
]

_log = logging.getLogger(__name__)


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


def log_event(event: Event) -> None:
    """Log what needs attention, for hosts that have no subscribers. The `Reporter` logs failures itself."""
    if isinstance(event, SnapshotCreated):
        for notice in event.notices:
            _log.warning("session %s: %s", event.session_id, notice)
    elif isinstance(event, SessionRecovered) and event.problem:
        _log.warning("session %s was not all recovered: %s", event.session_id, event.problem)


class Reporter:
    """Emits events and logs failures: ids and reasons, never message content. Any thread may use it.

    Args:
        emit: receives the events, from any thread; it must be quick and must not raise.
        clock: the time of the events.
    """

    def __init__(self, emit: Callable[[Event], object], clock: Callable[[], datetime]) -> None:
        self._emit, self._clock = emit, clock

    def created(self, ref: SnapshotRef, *, trigger: str, tags: tuple[str, ...], duration: float) -> None:
        """A snapshot is durable."""
        self._emit(
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
        self._emit(SnapshotSkipped(session_id=session_id, at=self._clock(), reason=reason, trigger=trigger))

    def failed(
        self, session_id: str, operation: str, error: Exception, *, failures: int = 1, retry_in: float | None = None
    ) -> None:
        """Report a failed operation."""
        about = describe(error)
        _log.warning("session %s: %s failed (%s): %s", session_id, operation, about["code"], loggable(error))
        self._emit(
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
        self._emit(PartNotKept(session_id=session_id, at=self._clock(), part=part, reason=reason))

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
        self._emit(event)
        return event

    def recovered(self, recovered: Recovered) -> None:
        """Report a session that ended without a clean stop."""
        self._emit(
            SessionRecovered(
                session_id=recovered.session_id,
                at=self._clock(),
                records=recovered.records,
                seq=recovered.ref.seq if recovered.ref else None,
                problem=recovered.problem,
            )
        )
