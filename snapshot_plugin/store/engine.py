"""`LogStore`: the store contract over any `FrameLog`, for asyncio and trio, and (`LogStore.sync`) for threads.

The asynchronous methods hop to a worker thread once; below that everything is plain, synchronous code that runs to
its end (`StoreCore`). Cancellation therefore never finds a save half done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio

from snapshot_plugin import forks
from snapshot_plugin.codec.compress import Effort
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.errors import StoreUnavailable, WrongKey
from snapshot_plugin.inert import several
from snapshot_plugin.model.ids import check_session_id
from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.arguments import no_snapshot
from snapshot_plugin.store.base import (
    GRACE,
    Capabilities,
    CheckReport,
    Finding,
    ForgetResult,
    StoredSnapshot,
    Trashed,
)
from snapshot_plugin.store.check import repairable
from snapshot_plugin.store.core import StoreCore
from snapshot_plugin.store.log import FrameLog, Tip
from snapshot_plugin.store.sync import SyncStore, Turns
from snapshot_plugin.store.transfer import Copied
from snapshot_plugin.store.views import Changes, Page, StoredLines
from snapshot_plugin.store.writer import Delta

__all__ = ["GRACE", "LogStore", "StoreLimits"]

T = TypeVar("T")


class StoreLimits:
    """Sizes worth a notice, and how much a store object keeps in memory to be fast.

    No data is ever truncated: a save over *message_bytes* or *session_bytes* succeeds with a notice.

    Args:
        message_bytes, session_bytes: what is mentioned in `SnapshotRef.notices`.
        heads: how many sessions stay ready for the next save.
        page_bytes: how much of what `page` and its like put together is kept.
    """

    def __init__(
        self,
        *,
        message_bytes: int = 1 << 20,
        session_bytes: int = 100 << 20,
        heads: int = 256,
        page_bytes: int = 32 << 20,
    ) -> None:
        self.message_bytes, self.session_bytes = message_bytes, session_bytes
        self.heads, self.page_bytes = heads, page_bytes

    def notices(self, step: Delta) -> tuple[str, ...]:
        """The notices of a save."""
        large = [size for size in step.sizes if size > self.message_bytes]
        out = (
            [f"{several(len(large), 'message')} over {self.message_bytes} bytes, the largest {max(large)}"]
            if large
            else []
        )
        if step.live > self.session_bytes:
            out.append(f"the session holds {step.live} bytes, over {self.session_bytes}")
        return tuple(out)


class LogStore:
    """A `SnapshotStore` over a `FrameLog`. `snapshot_plugin.store.base` states what it promises.

    A backend overrides `prepare`, `session_keys`, `prepared`, `segment_finished` and `finish` where it needs to.
    """

    def __init__(
        self,
        frames: FrameLog,
        *,
        limits: StoreLimits | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.frames, self.limits, self.clock = frames, limits or StoreLimits(), clock
        self.turns = Turns()
        self.core = StoreCore(self)
        self._sync = SyncStore(self)
        self._closed = self._is_ready = False
        forks.in_child(self.forked)

    capabilities = Capabilities()
    effort: Effort = "hot"
    """How well a save compresses its frame."""

    @property
    def sync(self) -> SyncStore:
        """The same methods as plain calls, for any thread: ``store.sync.save(snapshot)``."""
        return self._sync

    # What a backend fills in -----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Prepare the place; called in a worker thread before any other method."""

    def session_keys(self, session_id: str) -> SessionKeys | None:
        """The keys of one session; None in a plain store."""
        _ = session_id
        return None

    def prepared(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        """What ``work(*args)`` returns, once the place is ready. Every call of the store passes here.

        After `WrongKey`, the keys are read once more: another process may have rotated them since.
        """
        if self._closed:
            raise StoreUnavailable("the store was closed", hint="open it again")
        if not self._is_ready:
            self.prepare()
            self._is_ready = True
        try:
            return work(*args)
        except WrongKey:
            if not self.reload_keys():
                raise
            return work(*args)

    def reload_keys(self) -> bool:
        """Read the keys again; False in a plain store."""
        return False

    def place_id(self) -> str:
        """Identifies this store's place; empty if unknown."""
        return ""

    def guard(self, session_id: str) -> None:
        """Called before a session is deleted. Raises `SessionLocked` while it is live; `live` replaces this."""

    def segment_finished(self, session_id: str) -> None:
        """A segment will not grow any more; a store may compress it better now."""

    def forked(self) -> None:
        """Called in a forked child: the parent's threads, and the saves that they have under way, are not here."""
        self.turns = Turns()
        self.core.begin()

    def finish(self) -> None:
        """Finish background work and close files."""
        self.frames.close()

    # Calling ---------------------------------------------------------------------------------------------

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        from snapshot_plugin.store.hop import in_thread  # noqa: PLC0415 — brings asyncio, which lists do without

        return await in_thread(self.prepared, work, args)

    async def _in_turn(self, session_id: str, work: Callable[..., T], *args: Any) -> T:
        from snapshot_plugin.store.hop import in_turn  # noqa: PLC0415 — as above

        return await in_turn(self.turns, check_session_id(session_id), self.prepared, work, args)

    # Saving and loading ----------------------------------------------------------------------------------

    async def save(
        self,
        snapshot: SessionSnapshot,
        *,
        trigger: str = "manual",
        tags: Sequence[str] = (),
        base: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> SnapshotRef:
        """See `SnapshotStore.save`."""
        if not isinstance(snapshot, SessionSnapshot):
            raise no_snapshot(snapshot)
        args = (snapshot, trigger, tags, base, labels or {})
        return await self._in_turn(snapshot.session_id, self.core.save, *args)

    async def load(self, session_id: str, *, at: int | None = None, strict: bool = False) -> SessionSnapshot:
        """See `SnapshotStore.load`."""
        return await self._in_turn(session_id, self.core.load, session_id, at, strict)

    async def read(self, session_id: str, *, at: int | None = None, strict: bool = False) -> StoredSnapshot:
        """See `SnapshotStore.read`."""
        return await self._in_turn(session_id, self.core.read, session_id, at, strict)

    async def tip(self, session_id: str) -> Tip | None:
        """See `SnapshotStore.tip`."""
        return await self._in_turn(session_id, self.core.tip, session_id)

    async def page(
        self, session_id: str, *, at: int | None = None, start: int | None = None, count: int = 50
    ) -> Page:
        """See `SnapshotStore.page`."""
        return await self._in_turn(session_id, self.core.page, session_id, at, start, count)

    async def lines(self, session_id: str, *, at: int | None = None) -> StoredLines:
        """A snapshot without its messages, and those as stored lines of JSON, which are not validated."""
        return await self._in_turn(session_id, self.core.lines, session_id, at)

    async def section(self, session_id: str, *path: str, at: int | None = None) -> Any:
        """See `SnapshotStore.section`."""
        return await self._in_turn(session_id, self.core.section, session_id, path, at)

    async def changes(self, session_id: str, since: int, *, at: int | None = None) -> Changes:
        """See `SnapshotStore.changes`."""
        return await self._in_turn(session_id, self.core.changes, session_id, since, at)

    async def walk(self, session_id: str, seqs: Sequence[int]) -> Sequence[SessionSnapshot]:
        """See `SnapshotStore.walk`."""
        return await self._in_turn(session_id, self.core.walk, session_id, seqs)

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """See `SnapshotStore.list`."""
        return await self._run(self.core.list, labels or {})

    async def newest(self, session_id: str) -> SnapshotMeta | None:
        """One session as `list` shows it, without looking at the others; None if it is not there."""
        return await self._run(self.core.newest, session_id)

    async def history(self, session_id: str, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """See `SnapshotStore.history`."""
        return await self._in_turn(session_id, self.core.history, session_id, labels or {})

    # Removing --------------------------------------------------------------------------------------------

    async def delete(self, session_id: str, *, purge: bool = False) -> Trashed:
        """See `SnapshotStore.delete`."""
        return await self._in_turn(session_id, self.core.delete, session_id, purge)

    async def trash(self) -> Sequence[Trashed]:
        """See `SnapshotStore.trash`."""
        return await self._run(self.core.trash)

    async def undelete(self, token: str, *, session_id: str | None = None) -> str:
        """See `SnapshotStore.undelete`."""
        return await self._run(self.core.undelete, token, session_id)

    async def purge(self, *, older_than: timedelta = GRACE, now: datetime | None = None) -> Sequence[Trashed]:
        """See `SnapshotStore.purge`."""
        return await self._run(self.core.purge, older_than, now)

    async def forget(
        self,
        session_id: str,
        policy: RetentionPolicy | None = None,
        *,
        seqs: Collection[int] = (),
        dry_run: bool = False,
    ) -> ForgetResult:
        """See `SnapshotStore.forget`."""
        return await self._in_turn(session_id, self.core.forget, session_id, policy, seqs, dry_run)

    async def drop(self, session_id: str, seqs: Collection[int]) -> Trashed:
        """Drop the given snapshots, with a copy of the session in the trash; see `copies.drop`."""
        return await self._in_turn(session_id, self.core.drop, session_id, seqs)

    async def undrop(self, session_id: str, token: str) -> Sequence[int]:
        """Restore the snapshots that `drop` removed; later saves are kept. Returns their numbers."""
        return await self._in_turn(session_id, self.core.undrop, session_id, token)

    # Caring and moving -----------------------------------------------------------------------------------

    async def check(self, session_id: str | None = None, *, repair: bool = False) -> CheckReport:
        """See `SnapshotStore.check`."""
        report = await self._run(self.core.check, session_id)
        damaged = repairable(report) if repair else ()
        return report.evolve(
            repaired=tuple([await self._in_turn(each, self.core.repairs.repair, each) for each in damaged])
        )

    async def quarantined(self, session_id: str | None = None) -> Sequence[Finding]:
        """See `SnapshotStore.quarantined`."""
        return await self._run(self.core.quarantined, session_id)

    async def salvage(self, session_id: str) -> SnapshotRef | None:
        """See `SnapshotStore.salvage`."""
        return await self._in_turn(session_id, self.core.repairs.salvage, session_id)

    async def compact(self, session_id: str) -> None:
        """Compress a session's frames as well as possible, and seal them with the primary key.

        Content, numbers and roots stay. This is also how a store is re-encrypted after its key was rotated.
        """
        await self._in_turn(session_id, self.core.compact, session_id)

    async def take_out(self, session_id: str) -> Sequence[Copied]:
        """A whole session, to be carried elsewhere; see `transfer.take_out`. It stays here as well."""
        return await self._in_turn(session_id, self.core.take_out, session_id)

    async def put_in(self, session_id: str, copies: Sequence[Copied], *, instead_of: Sequence[Copied] = ()) -> None:
        """A session from elsewhere, whole or not at all; see `transfer.put_in`."""
        await self._in_turn(session_id, self.core.put_in, session_id, copies, instead_of)

    # Closing ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """As `aclose`, in this thread."""
        if not self._closed:
            self._closed = True
            self.finish()

    async def aclose(self) -> None:
        """See `SnapshotStore.aclose`."""
        from snapshot_plugin.store.hop import in_thread  # noqa: PLC0415 — as above

        with anyio.CancelScope(shield=True):
            await in_thread(self.close)

    async def __aenter__(self) -> Self:
        await self._run(lambda: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
