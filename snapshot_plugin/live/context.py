"""What the live sessions of one process share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.ports import LivePlace, Reduce, Reports
from snapshot_plugin.live.recovery import Recovered
from snapshot_plugin.live.steps import StoreMethods
from snapshot_plugin.model.meta import SnapshotRef

if TYPE_CHECKING:
    from snapshot_plugin.live.session import LiveSession

__all__ = ["LiveContext", "LogReports", "utc_now"]

log = logging.getLogger("snapshot_plugin.live")


def utc_now() -> datetime:
    """The time of day."""
    return datetime.now(UTC)


class LogReports:
    """The default `Reports`: what goes wrong is logged; ids and reasons, never what was said in a session."""

    def created(self, ref: SnapshotRef, **_about: Any) -> None:
        """See `Reports`."""
        for notice in ref.notices:
            log.warning("session %s: %s", ref.session_id, notice)

    def skipped(self, session_id: str, **about: Any) -> None:
        """See `Reports`."""

    def failed(self, session_id: str, operation: str, error: Exception, **_about: Any) -> None:
        """See `Reports`."""
        log.warning("session %s: %s failed: %s", session_id, operation, error)

    def recovered(self, recovered: Recovered) -> None:
        """See `Reports`."""
        if recovered.problem:
            log.warning("session %s was not all recovered: %s", recovered.session_id, recovered.problem)


@dataclass
class LiveContext:
    """What the live sessions of one process share."""

    place: LivePlace | None
    """Where leases and spools are; None for a store that has no such place."""
    store: StoreMethods | None = None
    """For `LiveSession.save`. Async callers run the steps of a session with their own store instead."""
    owner: Callable[[], Owner] = lambda: Owner.this_process(since=utc_now())
    reports: Reports = field(default_factory=LogReports)
    clock: Callable[[], datetime] = utc_now
    reducers: Mapping[str, Reduce] = field(default_factory=dict)
    recorded: Callable[[], None] = lambda: None
    """Called after something was spooled that is not flushed yet."""
    touch: Callable[[LiveSession], None] = lambda _session: None
    """Called when a session wants to be saved soon."""
    overtaken: Callable[[LiveSession], None] = lambda _session: None
    """Called once, from any thread, when another process has taken the session over. Must be quick."""
    forget: Callable[[LiveSession], None] = lambda _session: None
    """Called when a session is closed."""
