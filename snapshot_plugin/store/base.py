"""The store contract: every promise a snapshot store makes, in one place.

A store keeps **sessions**; a session is a sequence of **snapshots** numbered 1, 2, 3, … by the store. Both
built-in stores keep what is written here, and `snapshot_plugin.testing.StoreContract` is the suite that a
third-party store runs to show that it does too.

**Durable on return.** When `save` returns, the snapshot survives the death of the process and of the power
(as far as the backend has power to lose: `MemoryStore` forgets with its process). When `save` raises, the
snapshot is not there, or — only if the disk failed at the very last step — it is there whole. Never half written.

**Order.** Sequence numbers only grow, and are never used twice within a session, whatever clocks do. Saves of
one session through one store object happen in the order in which they were called.

**Conflict.** A save builds on a snapshot: the one named by `base`; or else the newer of two: the one its value was
loaded from (a loaded snapshot remembers that, through `append` and `evolve`), and this store object's own last save
of the session. If that is no longer the end of the log, the save raises `Conflict` and writes nothing. A value that
was never loaded, saved by a store object that never saved the session, builds on nothing: the session must be new.
Reading does not affect this. A stale writer is therefore refused, never acknowledged and lost.

**Unchanged.** A save whose content equals the head's, without snapshot tags, writes nothing and returns the
head's ref with `written=False`. `updated_at` does not count as content: a save that changes nothing else is
unchanged.

**Not found.** A session that was never saved, or was deleted, and a sequence number that was never used, was
forgotten, or lies after the head, raise `SnapshotNotFound`. `list` of an empty store is empty.

**Corrupt.** Stored bytes are verified before use. `load` and `read` of the newest fall back to the newest intact
snapshot and name what they skipped; with ``strict=True``, or for a named sequence
number, they raise `SnapshotCorrupted` (bytes wrong), `SnapshotTampered` (bytes well-formed, key disagrees),
or `InvalidSnapshotVersion` (from a newer release). If no snapshot is intact, they raise too. Reading never
changes anything on disk.

**Cancellation.** A cancelled `save` has either happened whole or not at all; the store object stays usable.

**Errors.** Everything raised on purpose is a `SnapshotError`; disk errors are `StoreUnavailable`.

**Two faces.** The asynchronous methods run on asyncio and trio. `sync` offers the same methods as plain calls, for
any thread and without an event loop. One store object may be used through both, by several threads and event loops
at once. Any number of store objects, in any number of processes, may work on the same place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.policy import Decision, RetentionPolicy
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.value import Timestamp, Value

if TYPE_CHECKING:
    from snapshot_plugin.store.log import Tip
    from snapshot_plugin.store.sync import SyncStore
    from snapshot_plugin.store.views import Page

__all__ = [
    "GRACE",
    "Capabilities",
    "CheckReport",
    "Finding",
    "ForgetResult",
    "SnapshotStore",
    "StoredSnapshot",
    "Trashed",
]

GRACE = timedelta(days=30)
"""How long a deleted session can be brought back."""


class Finding(Value):
    """One thing that is wrong with stored bytes: where, what, and which snapshots it costs."""

    session_id: str
    kind: str
    """Damage: corrupted · tampered · chain · version_unsupported · wrong_key · misplaced · unreadable.
    What a crash may leave: unfinished · leftover. What a repair set aside: quarantine."""
    detail: str
    file: str | None = None
    offset: int | None = None
    seq: int | None = None

    @property
    def is_damage(self) -> bool:
        """False for leftovers of a crash or a repair: they hold no acknowledged data."""
        return self.kind not in ("unfinished", "leftover", "quarantine")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    """A snapshot together with where it was, and what had to be skipped to get it."""

    snapshot: SessionSnapshot
    ref: SnapshotRef
    meta: SnapshotMeta
    skipped: tuple[Finding, ...] = ()


class ForgetResult(Value):
    """What a policy decided for one session, and whether it was carried out."""

    session_id: str
    decisions: tuple[Decision, ...]
    dry_run: bool

    @property
    def forgotten(self) -> tuple[int, ...]:
        """The sequence numbers that are (or, in a dry run, would be) gone."""
        return tuple(d.seq for d in self.decisions if not d.keep)


class Trashed(Value):
    """A deleted session that can still be brought back."""

    session_id: str
    token: str
    deleted_at: Timestamp
    size_bytes: int = 0


class CheckReport(Value):
    """What a check looked at and what it found."""

    sessions: int = 0
    snapshots: int = 0
    bytes_read: int = 0
    findings: tuple[Finding, ...] = ()
    repaired: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when no promised byte is missing or wrong."""
        return not any(finding.is_damage for finding in self.findings)


class Capabilities(NamedTuple):
    """What a store can do beyond the contract. Check this instead of the store's class."""

    live: bool = False
    """It has a place for the lease and the spool of a live session (`session_dir`)."""
    several_machines: bool = False
    """Stores on several machines may work on the same place."""


class SnapshotStore(Protocol):
    """Where snapshots live. The module docstring is part of this contract."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do beyond the contract."""

    @property
    def sync(self) -> SyncStore:
        """The same methods as plain calls: no event loop, any thread."""

    async def save(
        self,
        snapshot: SessionSnapshot,
        *,
        trigger: str = "manual",
        tags: Sequence[str] = (),
        base: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> SnapshotRef:
        """Make *snapshot* the session's newest; durable on return. The cost follows what changed.

        Args:
            snapshot: the session as it is now.
            trigger: why it is taken; shown in history.
            tags: tags of this snapshot (retention can keep them); with tags even an unchanged session is saved.
            base: the sequence number the session must be at, 0 for "must not exist"; default: see above.
            labels: small keys and values an adapter finds this snapshot by; never shown as tags. They are stored in
                the clear, as tags are. With labels even an unchanged session is saved.
        """

    async def load(self, session_id: str, *, at: int | None = None, strict: bool = False) -> SessionSnapshot:
        """The newest whole snapshot, or the one numbered *at*; migrated to the current version."""

    async def read(self, session_id: str, *, at: int | None = None, strict: bool = False) -> StoredSnapshot:
        """As `load`, and also return where the snapshot was found and what was skipped."""

    async def tip(self, session_id: str) -> Tip | None:
        """The number and id of the newest frame, found without reading the session; None if there is none."""

    async def page(
        self, session_id: str, *, at: int | None = None, start: int | None = None, count: int = 50
    ) -> Page:
        """Messages *start* to *start* + *count* of a snapshot, or its last *count*. Only these are validated."""

    async def section(self, session_id: str, *path: str, at: int | None = None) -> Any:
        """One section alone, as plain JSON: ``section("s", "metadata", "topic")``. None if there is none."""

    async def walk(self, session_id: str, seqs: Sequence[int]) -> Sequence[SessionSnapshot]:
        """The snapshots numbered *seqs*, in that order. Shared messages are read and held once."""

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """The newest snapshot of every session, last changed first, or of those with these labels.

        Damaged ones are listed as damaged.
        """

    async def history(self, session_id: str, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """Every snapshot of one session, or those with these labels, newest first."""

    async def delete(self, session_id: str, *, purge: bool = False) -> Trashed:
        """Move the session to the trash, where `undelete` finds it until `purge`; with *purge*, remove it for ever.

        `SessionLocked` if the session is live (see `LogStore.guard`).
        """

    async def trash(self) -> Sequence[Trashed]:
        """The deleted sessions that can still be brought back, newest first."""

    async def undelete(self, token: str, *, session_id: str | None = None) -> str:
        """Restore a deleted session and return its id; `Conflict` if the id is taken.

        With *session_id*, it is restored under that id, which must not exist.
        """

    async def purge(self, *, older_than: timedelta = ..., now: datetime | None = None) -> Sequence[Trashed]:
        """Remove for ever what has been in the trash longer than the grace period. Returns what went."""

    async def forget(
        self,
        session_id: str,
        policy: RetentionPolicy | None = None,
        *,
        seqs: Collection[int] = (),
        dry_run: bool = False,
    ) -> ForgetResult:
        """Drop the snapshots the policy does not keep, or just those numbered *seqs*.

        Those that stay keep their numbers, content and roots. The newest one always stays: `InvalidInput` if *seqs*
        names it, or a number that is not there.
        """

    async def check(self, session_id: str | None = None, *, repair: bool = False) -> CheckReport:
        """Read and verify everything, down to every root; nothing is changed.

        With *repair*, damaged files are copied to quarantine and the session is rewritten with its intact
        snapshots; data after the damage is salvaged first.
        """

    async def quarantined(self, session_id: str | None = None) -> Sequence[Finding]:
        """The quarantined files of one session or of all, including sessions of which nothing else is left."""

    async def salvage(self, session_id: str) -> SnapshotRef | None:
        """Rebuild a damaged session from every intact frame, and save it as a new snapshot.

        Missing messages leave a marked gap; the snapshot has the tag ``salvaged``. Nothing is removed. Returns None
        if this finds no more than `load`. Also reads the files that an earlier repair put in quarantine.
        """

    async def aclose(self) -> None:
        """Finish background work and close files. Saving afterwards raises `StoreUnavailable`."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
