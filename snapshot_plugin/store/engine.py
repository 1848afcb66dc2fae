"""`LogStore`: the store contract over any `FrameLog`, for asyncio and trio, and (`LogStore.sync`) for threads.

The asynchronous methods hop to a worker thread once; below that everything is plain, synchronous code that runs to
its end (`StoreCore`). Cancellation therefore never finds a save half done.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import anyio

from snapshot_plugin.codec.compress import Effort
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.errors import StoreUnavailable, WrongKey
from snapshot_plugin.inert import several
from snapshot_plugin.store.base import GRACE, Capabilities, CheckReport
from snapshot_plugin.store.check import repairable
from snapshot_plugin.store.core import StoreCore
from snapshot_plugin.store.faces import asynchronous
from snapshot_plugin.store.log import FrameLog
from snapshot_plugin.store.sync import SyncStore, Turns
from snapshot_plugin.store.writer import Delta
from snapshot_plugin.system import forks

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

    def prepared(self, work: Callable[[], T], session_id: str | None = None) -> T:
        """What *work* returns, once the place is ready. Every call of the store passes here.

        *session_id* is the session that the call is about. After `WrongKey`, the keys are read once more: another
        process may have rotated them since.
        """
        _ = session_id
        if self._closed:
            raise StoreUnavailable("the store was closed", hint="open it again")
        if not self._is_ready:
            self.prepare()
            self._is_ready = True
        try:
            return work()
        except WrongKey:
            if not self.reload_keys():
                raise
            return work()

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

    # The methods of `SnapshotStore`, and a few more ----------------------------------------------------------

    save = asynchronous(StoreCore.save)
    load = asynchronous(StoreCore.load)
    read = asynchronous(StoreCore.read)
    tip = asynchronous(StoreCore.tip)
    page = asynchronous(StoreCore.page)
    lines = asynchronous(StoreCore.lines)
    section = asynchronous(StoreCore.section)
    walk = asynchronous(StoreCore.walk)
    list = asynchronous(StoreCore.list, turn=False)
    newest = asynchronous(StoreCore.newest, turn=False)
    history = asynchronous(StoreCore.history)
    delete = asynchronous(StoreCore.delete)
    trash = asynchronous(StoreCore.trash, turn=False)
    undelete = asynchronous(StoreCore.undelete, turn=False)
    purge = asynchronous(StoreCore.purge, turn=False)
    forget = asynchronous(StoreCore.forget)
    drop = asynchronous(StoreCore.drop)
    undrop = asynchronous(StoreCore.undrop)
    quarantined = asynchronous(StoreCore.quarantined, turn=False)
    salvage = asynchronous(StoreCore.salvage)
    compact = asynchronous(StoreCore.compact)
    take_out = asynchronous(StoreCore.take_out)
    put_in = asynchronous(StoreCore.put_in)

    async def check(self, session_id: str | None = None, *, repair: bool = False) -> CheckReport:
        """See `SnapshotStore.check`."""
        report = await self.run(None, partial(self.core.check, session_id))
        damaged = repairable(report) if repair else ()
        repaired = [await self.run(each, partial(self.core.repairs.repair, each)) for each in damaged]
        return report.evolve(repaired=tuple(repaired))

    async def run(self, session_id: str | None, work: Callable[[], T]) -> T:
        """Do *work* in a worker thread; for a session, in its turn."""
        from snapshot_plugin.store.hop import in_thread, in_turn  # noqa: PLC0415 — asyncio, which lists do without

        if session_id is None:
            return await in_thread(self.prepared, work)
        return await in_turn(self.turns, session_id, self.prepared, work, session_id)

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
        await self.run(None, lambda: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
