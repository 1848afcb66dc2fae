"""What a place for live sessions promises, what records a session's events, and what the sessions share.

`snapshot_plugin.testing.LiveContract` checks a `LivePlace` against these promises.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.spool import Record
from snapshot_plugin.live.steps import StoreMethods
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import utc_now
from snapshot_plugin.store.base import SnapshotStore

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys
    from snapshot_plugin.live.recovery import Recovered
    from snapshot_plugin.live.session import LiveSession
    from snapshot_plugin.store.postgres.live_rows import LiveRows

__all__ = [
    "Hold",
    "LiveContext",
    "LivePlace",
    "LocalPlace",
    "LocalStore",
    "LogReports",
    "PlacedStore",
    "Record",
    "Reduce",
    "Reducer",
    "Reports",
    "StoreWithRows",
]

Reduce = Callable[[SessionSnapshot, Sequence[Record]], SessionSnapshot]
"""Applies records, at least one, to the newest snapshot, or to an empty one where the session has none. Pure."""


@runtime_checkable
class Hold(Protocol):
    """The lease and the spool of one session, held by one owner until `release` or its death. For any thread."""

    epoch: int
    """The fencing number: higher than that of every earlier hold of the session."""
    previous: Owner | None
    """The owner before, if it ended without a proper stop."""
    damage: str | None
    """What was found wrong in the spool, and where the damaged bytes are kept; None if nothing was."""

    @property
    def is_fenced(self) -> bool:
        """Whether another owner has taken the session over, or it was deleted, as far as a cheap look can tell."""

    def watch(self, overtaken: Callable[[], None]) -> None:
        """Call *overtaken* once, from any thread, when another owner is found to have taken the session over.

        It must be quick and must not raise. A place that cannot be overtaken never calls it.
        """

    @property
    def last(self) -> int:
        """The number of the newest record; numbers grow by one and are never used twice."""

    def append(self, records: Sequence[Mapping[str, Any]]) -> int:
        """Add *records* in one write; all or none. On return they survive the death of this process.

        Never waits for a `flush` of another thread.

        Raises:
            InvalidInput: one is not a JSON object. Nothing was added.
            StoreUnavailable: the place refused. Nothing was added.
            Fenced: another owner has taken the session over, or it was deleted.
        """

    def flush(self) -> None:
        """Make what was appended before the call survive a power cut; returns when it does.

        Raises:
            StoreUnavailable: the place refused; keeps being raised until `truncate` has begun anew.
            Fenced: as `append`.
        """

    def unsaved(self, after: int) -> Sequence[Record]:
        """The records with higher numbers than *after* that were there when the session was taken, in order.

        Raises:
            SnapshotCorrupted: records between *after* and the first one are missing.
        """

    def truncate(self, upto: int) -> None:
        """Drop the records numbered up to *upto*: a durable snapshot contains them. All of them go, or none.

        Numbers continue as before, or after *upto* if that is higher. Safe beside `append` and `flush`.
        """

    def set_aside(self, after: int) -> str | None:
        """Keep all records where nothing reads them and begin an empty spool after *after*; say where they are."""

    def release(self) -> None:
        """Flush, and give the session up as properly stopped. Records stay. May be called twice; never raises."""

    def hand_back(self) -> None:
        """Give the session up as if it had not been taken: a dead owner before stays known as dead."""


@runtime_checkable
class LivePlace(Protocol):
    """Where leases and spools are kept."""

    def take(self, session_id: str, owner: Owner) -> Hold:
        """Become the session's only owner.

        Raises:
            SessionLocked: another owner is alive; the text says which and since when.
            KeyMissing, WrongKey, InvalidSnapshotVersion: its spool cannot be read. Nothing was changed.
            StoreUnavailable: the place refused.
        """

    def owner(self, session_id: str) -> Owner | None:
        """The living owner of the session, if it has one. Changes nothing."""

    def owners(self) -> Mapping[str, Owner]:
        """Every session that has a living owner. Changes nothing."""

    def abandoned(self) -> Sequence[str]:
        """The sessions without an owner whose last one died, or that still have records. Changes nothing."""

    def is_abandoned(self, session_id: str) -> bool:
        """The same for one session."""

    def spool_mark(self, session_id: str) -> tuple[int, ...]:
        """Differs whenever the session's spool does; empty if it has none. Changes nothing."""

    def records(self, session_id: str) -> Sequence[Record]:
        """What the session's spool holds, without owning it. Changes nothing.

        Raises:
            SnapshotError: it cannot be read.
        """


class Reducer(Protocol):
    """A session as it is being recorded: events in, snapshot out. Pure: no I/O, no clock.

    Besides its own events it understands ``{"label": {…}}`` (title, tags, pinned, note), ``{"current_task": text}``
    and ``{"interrupted": why}`` (the turn under way ends without an answer), each with ``t``, the time. `apply`
    never raises.
    """

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""

    @property
    def is_long(self) -> bool:
        """Whether so much was added since the last `snapshot` that one should be saved soon, also in mid-turn."""

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take one event in."""

    def snapshot(self, now: datetime) -> SessionSnapshot:
        """The session as it is now."""


class Reports(Protocol):
    """Told what happens to live sessions. Called from any thread; must be quick and must not raise."""

    def created(self, ref: SnapshotRef, *, trigger: str, tags: tuple[str, ...], duration: float) -> None:
        """A snapshot is durable. Its notices name a foreign write that came in between."""

    def skipped(self, session_id: str, *, reason: str, trigger: str = "auto") -> None:
        """Nothing had to be written."""

    def failed(
        self, session_id: str, operation: str, error: Exception, *, failures: int = 1, retry_in: float | None = None
    ) -> None:
        """*operation* (``spool``, ``save``) failed; it is tried again."""

    def recovered(self, recovered: Recovered) -> None:
        """A dead owner's spool was recovered into a snapshot, or could not be."""


@runtime_checkable
class LocalPlace(Protocol):
    """A store that has a directory per session, where spool and lease live."""

    def session_dir(self, session_id: str) -> Path:
        """The session's own directory; created, private, if it is not there."""

    def session_keys(self, session_id: str) -> SessionKeys | None:
        """What seals this session's bytes; None in a plain store."""


@runtime_checkable
class PlacedStore(SnapshotStore, LocalPlace, Protocol):
    """A store whose sessions can have spools and leases."""


@runtime_checkable
class LocalStore(PlacedStore, Protocol):
    """A store on this machine's disk: each session is a directory in ``path / "sessions"``, as format.md says."""

    path: Path


@runtime_checkable
class StoreWithRows(Protocol):
    """A store in a database: leases and spools are rows."""

    live_rows: LiveRows

    def session_keys(self, session_id: str) -> SessionKeys | None:
        """What seals this session's bytes; None in a plain store."""


log = logging.getLogger("snapshot_plugin.live")


class LogReports:
    """The default `Reports`: failures are logged with ids and reasons, never with message content."""

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
    shared: bool = False
    """Whether other machines may write to the store."""
    store: StoreMethods | None = None
    """For `LiveSession.save`. Async callers run the steps of a session with their own store instead."""
    owner: Callable[[], Owner] = lambda: Owner.this_process(since=utc_now())
    reports: Reports = field(default_factory=LogReports)
    clock: Callable[[], datetime] = utc_now
    reducers: Mapping[str, Reduce] = field(default_factory=dict)
    recorded: Callable[[], None] = lambda: None
    """Called after something was spooled that is not flushed yet, unless `flush_due` says that it was called."""
    flush_due: threading.Event = field(default_factory=threading.Event)
    touch: Callable[[LiveSession], None] = lambda _session: None
    """Called when a session wants to be saved soon."""
    overtaken: Callable[[LiveSession], None] = lambda _session: None
    """Called once, from any thread, when another process has taken the session over. Must be quick."""
    forget: Callable[[LiveSession], None] = lambda _session: None
    """Called when a session is closed."""
