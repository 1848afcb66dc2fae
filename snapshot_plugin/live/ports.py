"""The contracts of live sessions: `LivePlace` and `Hold`, `Reducer`; and the context they share.

`snapshot_plugin.testing.LiveContract` checks a `LivePlace` against its contract.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from snapshot_plugin.live.spool import Record
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import utc_now
from snapshot_plugin.system import forks

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys
    from snapshot_plugin.live.events import Reporter
    from snapshot_plugin.live.lease import Owner
    from snapshot_plugin.live.session import LiveSession
    from snapshot_plugin.store.postgres.live_rows import LiveRows
    from snapshot_plugin.store.sync import SyncStore

__all__ = [
    "ExpiringHold",
    "Hold",
    "LiveContext",
    "LivePlace",
    "LocalPlace",
    "LocalStore",
    "Record",
    "Reduce",
    "Reducer",
    "StoreWithRows",
]


Reduce = Callable[[SessionSnapshot, Sequence[Record]], SessionSnapshot]
"""Applies one or more records to the newest snapshot, or to an empty one if the session has none. Pure."""


@runtime_checkable
class Hold(Protocol):
    """The lease and the spool of one session, held by one owner until `release` or its death. Thread-safe."""

    epoch: int
    """The fencing number: higher than that of every earlier hold of the session."""
    previous: Owner | None
    """The previous owner, if it ended without a proper stop."""
    damage: str | None
    """What was found wrong in the spool, and where the damaged bytes are kept; None if nothing was."""

    @property
    def is_fenced(self) -> bool:
        """Whether another owner took the session over, or it was deleted. A cheap check that may miss either."""

    def watch(self, overtaken: Callable[[], None]) -> None:
        """Call *overtaken* once, from any thread, when another owner has taken the session over.

        It must be quick and must not raise. A place that cannot be overtaken never calls it.
        """

    @property
    def last(self) -> int:
        """The number of the newest record. Numbers grow by one and are never reused."""

    def append(self, records: Sequence[Mapping[str, Any]]) -> int:
        """Add *records* in one write; all or none. On return they survive the death of this process.

        Never waits for a `flush` in another thread.

        Raises:
            InvalidInput: one is not a JSON object. Nothing was added.
            StoreUnavailable: the place refused. Nothing was added.
            Fenced: another owner has taken the session over, or it was deleted.
        """

    def flush(self) -> None:
        """Make what was appended before the call survive a power cut; returns when it does.

        Raises:
            StoreUnavailable: the place refused. Every flush raises until `truncate` has begun anew.
            Fenced: as `append`.
        """

    def unsaved(self, after: int) -> Sequence[Record]:
        """The records with higher numbers than *after* that the spool held when the session was taken, in order.

        Raises:
            SnapshotCorrupted: records between *after* and the first one are missing.
        """

    def truncate(self, upto: int) -> None:
        """Drop the records numbered up to *upto*, which a durable snapshot contains. All or none.

        Numbers continue as before, or after *upto* if that is higher. Safe during `append` and `flush`.
        """

    def set_aside(self, after: int) -> str | None:
        """Move all records where nothing reads them, and begin an empty spool after *after*; return the place."""

    def release(self) -> None:
        """Flush, and release the session as properly stopped. Records stay. Idempotent; never raises."""

    def hand_back(self) -> None:
        """Release the session as if it had not been taken: a previous dead owner is still reported as dead."""


@runtime_checkable
class ExpiringHold(Protocol):
    """What the `Hold` of a place that several machines share has, too: others may take what is not renewed in time.

    Output of such a session is shown only once the place has it, and its agent is paused while the lease is over.
    It does not inherit from `Hold`, because a check at run time would read its properties, and one asks the disk.
    """

    def seconds_left(self) -> float:
        """For how long no other owner can take the session, by the clock of this machine. Cheap; never waits."""

    def watch_rollback(self, rolled_back: Callable[[], None]) -> None:
        """Call *rolled_back*, from any thread, when the place lost what it had acknowledged, and nobody took it."""


@runtime_checkable
class LivePlace(Protocol):
    """Where leases and spools are kept."""

    def take(self, session_id: str, owner: Owner) -> Hold:
        """Become the session's only owner.

        Raises:
            SessionLocked: another owner is alive; the message says which and since when.
            KeyMissing, WrongKey, InvalidSnapshotVersion: its spool cannot be read. Nothing was changed.
            StoreUnavailable: the place refused.
        """

    def owner(self, session_id: str) -> Owner | None:
        """The living owner of the session, if it has one. Changes nothing."""

    def owners(self) -> Mapping[str, Owner]:
        """Every session that has a living owner. Changes nothing."""

    def abandoned(self) -> Sequence[str]:
        """Sessions without an owner whose last owner died, or that still have records. Changes nothing."""

    def is_abandoned(self, session_id: str) -> bool:
        """As `abandoned`, for one session."""

    def spool_mark(self, session_id: str) -> tuple[int, ...]:
        """A value that changes whenever the session's spool does; empty if it has none. Changes nothing."""

    def records(self, session_id: str) -> Sequence[Record]:
        """Read the records in the session's spool without owning it. Changes nothing.

        Raises:
            SnapshotError: it cannot be read.
        """


class Reducer(Protocol):
    """A session as it is being recorded: events in, snapshot out. Pure: no I/O, no clock.

    Besides its own events it understands ``{"label": {…}}`` (title, tags, pinned, note), ``{"current_task": text}``
    and ``{"interrupted": why}`` (the current turn ends without an answer), each with ``t``, the time. `apply`
    never raises.
    """

    @property
    def running(self) -> bool:
        """Whether a turn is running."""

    @property
    def is_long(self) -> bool:
        """Whether so much was added since the last `snapshot` that one should be saved soon, even in mid-turn."""

    def apply(self, event: Mapping[str, Any]) -> None:
        """Apply one event."""

    def snapshot(self, now: datetime) -> SessionSnapshot:
        """The session as it is now."""


@runtime_checkable
class LocalPlace(Protocol):
    """A store with a directory per session, which holds the spool and the lease."""

    def session_dir(self, session_id: str) -> Path:
        """The session's own directory; created, private to the user, if it does not exist."""

    def session_keys(self, session_id: str) -> SessionKeys | None:
        """What seals this session's bytes; None in a plain store."""


@runtime_checkable
class LocalStore(LocalPlace, Protocol):
    """A store on this machine's disk: each session is a directory in ``path / "sessions"``, as format.md says."""

    path: Path


@runtime_checkable
class StoreWithRows(Protocol):
    """A store in a database: leases and spools are rows."""

    live_rows: LiveRows

    def session_keys(self, session_id: str) -> SessionKeys | None:
        """What seals this session's bytes; None in a plain store."""


@dataclass
class LiveContext:
    """What the live sessions of one process share."""

    store: SyncStore
    place: LivePlace | None
    """Where leases and spools are kept; None if the store has no such place."""
    owner: Callable[[], Owner]
    """Returns this process, to be named in leases."""
    report: Reporter
    """Tells what happens."""
    shared: bool = False
    """Whether other machines may write to the store."""
    clock: Callable[[], datetime] = utc_now
    reducers: Mapping[str, Reduce] = field(default_factory=dict)
    recorded: Callable[[], None] = lambda: None
    """Called after an append that is not flushed yet, unless `flush_due` is set."""
    flush_due: threading.Event = field(default_factory=forks.event)
    touch: Callable[[LiveSession], None] = lambda _session: None
    """Called when a session should be saved soon."""
    overtaken: Callable[[LiveSession], object] = lambda _session: None
    """Called once, from any thread, when another process has taken the session over. Must be quick."""
    forget: Callable[[LiveSession], None] = lambda _session: None
    """Called when a session is closed."""
