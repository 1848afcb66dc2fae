"""The live sessions of a manager: `LiveSession` for event loops, with the state of a session object.

A session object is asked for its snapshot, and whether it changed.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio

from snapshot_plugin.errors import InvalidSnapshot, SnapshotError, StoreUnavailable
from snapshot_plugin.live.ports import LiveContext
from snapshot_plugin.live.session import LiveSession, Mark
from snapshot_plugin.live.steps import run_async
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.events import Reporter
from snapshot_plugin.manager.ports import Adapted, Snapshottable
from snapshot_plugin.model.ids import check_session_id
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot
from snapshot_plugin.store.hop import in_thread

__all__ = ["ManagedSession", "ManagedSessions", "ManagerContext", "ask", "is_same", "source_of"]

_TAKES = 3
"""How often an async snapshot is taken again because records arrived meanwhile."""


@dataclass(frozen=True)
class ManagerContext:
    """What every session of a manager works with."""

    store: SnapshotStore
    config: SnapshotConfig
    report: Reporter
    saves: anyio.CapacityLimiter
    live: LiveContext


class _Seen(NamedTuple):
    """The content of the newest snapshot."""

    snapshot: SessionSnapshot
    upto: int


class ManagedSession:
    """One live session of a manager. Its lease is not taken before `take` or the first save.

    Calls to `save` that arrive while one is under way are answered together by the next. A save that raises has
    changed nothing: the next one saves everything.
    """

    def __init__(self, session_id: str, context: ManagerContext) -> None:
        self.session_id = session_id
        self.live = LiveSession(session_id, context.live)
        self.holders = 0
        self.starting = anyio.Lock()
        """Held by a caller that starts the session: one at a time."""
        self._context = context
        self._taking, self._flushing, self._saving = anyio.Lock(), anyio.Lock(), anyio.Lock()
        self._requested = self._covered = self._flushed = 0
        self._source: object = None
        self._seen: _Seen | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process has the session's lease."""
        return self.live.is_held

    async def take(self) -> None:
        """Take the lease and recover what an earlier owner left in the spool. Does nothing when it is held.

        Raises:
            SessionLocked: another process owns the session.
            StoreUnavailable: the disk refused; may be tried again.
        """
        if not self.live.is_held:
            async with self._taking:
                await run_async(self.live.taking(), self._context.store)

    async def try_to_take(self) -> None:
        """As `take`, but a disk that refuses is only reported: the session starts, and every save asks again."""
        try:
            await self.take()
        except StoreUnavailable as error:
            self.live.failed("spool", error)

    async def flush(self) -> None:
        """Make recorded events survive a power cut. A disk error is reported, not raised."""
        async with self._flushing:  # the flush in progress may cover this caller's records
            last = self.live.mark.upto
            if last != self._flushed:
                self._flushed = last
                await run_async(self.live.flushing(), self._context.store)

    async def release(self) -> None:
        """Give the lease up: properly stopped. `take` takes it again."""
        async with self._taking:
            await in_thread(self.live.release)

    def continue_from(self, session: Snapshottable, stored: StoredSnapshot | None) -> None:
        """*session* is now as *stored*, and is not saved again before it changes."""
        ref = self.live.ref
        if stored is not None and (ref is None or ref.seq <= stored.ref.seq):
            self.live.continue_from(stored)
            self._source, self._seen = source_of(session), _Seen(stored.snapshot, self.live.mark.upto)

    async def save(self, session: Snapshottable, trigger: str, tags: Sequence[str] = ()) -> SnapshotRef:
        """Save the current state of *session*; durable on return. Raises what `asking.ask` and the store raise."""
        self._requested += 1
        ticket, source = self._requested, source_of(session)
        async with self._saving:
            ref = self.live.ref
            if source is self._source and self._covered >= ticket and not tags and ref is not None:
                return ref
            if source is not self._source:
                self._source, self._seen = source, None
            covers = self._requested
            ref = await self._save(session, trigger, tuple(tags))
            self._covered = covers
            return ref

    async def _save(self, session: Snapshottable, trigger: str, tags: tuple[str, ...]) -> SnapshotRef:
        started = anyio.current_time()
        await self.take()
        snapshot, mark = await self._taken(session)
        newest, report = self.live.ref, self._context.report
        if newest is not None and not tags and self._is_seen(snapshot, mark):
            report.skipped(self.session_id, reason="unchanged", trigger=trigger)
            return newest
        async with self._context.saves:
            ref = await run_async(self.live.saving(snapshot, mark, trigger, tags), self._context.store)
        self._seen = _Seen(snapshot, mark.upto)
        if ref.written:
            report.created(ref, trigger=trigger, tags=tags, duration=anyio.current_time() - started)
        else:
            report.skipped(self.session_id, reason="unchanged", trigger=trigger)
        return ref

    async def _taken(self, session: Snapshottable) -> tuple[SessionSnapshot, Mark]:
        """The snapshot, and the mark of the newest record it contains.

        A plain method answers at once, so nothing can have been recorded meanwhile. If records arrived while an
        async one worked, it may have missed them: ask again. If they never stop, use the mark from before, because
        applying a record twice is better than losing it.
        """
        takes = 0
        while True:
            mark, takes = self.live.mark, takes + 1
            snapshot = await ask(session, timeout=self._context.config.snapshot_timeout)
            if self.live.mark == mark or takes == _TAKES:
                return snapshot, mark

    def _is_seen(self, snapshot: SessionSnapshot, mark: Mark) -> bool:
        if self._seen is None or not self.live.is_overlay_saved:
            return False
        return mark.upto == self._seen.upto and is_same(self._seen.snapshot, snapshot)


class ManagedSessions:
    """The live sessions of one manager: one object per id, kept for as long as something here uses it."""

    def __init__(self, make: Callable[[str], ManagedSession]) -> None:
        self._make = make
        self._held: dict[str, ManagedSession] = {}
        self._recorded = anyio.Event()

    def hold(self, session_id: str) -> ManagedSession:
        """The session with this id; must be given back with `drop`."""
        managed = self._held.get(session_id) or self._make(check_session_id(session_id))
        self._held[session_id] = managed
        managed.holders += 1
        return managed

    async def drop(self, managed: ManagedSession) -> None:
        """Give a session back. The last holder's return releases the lease, even when cancelled."""
        managed.holders -= 1
        if managed.holders:
            return
        with anyio.CancelScope(shield=True):
            await managed.release()
        if not managed.holders:
            self._held.pop(managed.session_id, None)

    @asynccontextmanager
    async def holding(self, session_id: str) -> AsyncIterator[ManagedSession]:
        """`hold`, and `drop` at the end of the block."""
        managed = self.hold(session_id)
        try:
            yield managed
        finally:
            await self.drop(managed)

    def get(self, session_id: str) -> LiveSession | None:
        """The live session with this id, if it is held here."""
        managed = self._held.get(session_id)
        return managed.live if managed else None

    def record(self, session_id: str, record: dict[str, Any]) -> bool:
        """Spool *record* of a session that is held here; see `LiveSession.record_all`."""
        live = self.get(session_id)
        return live is not None and live.record(record)

    def wake(self) -> None:
        """Something was recorded and is not flushed yet."""
        self._recorded.set()

    async def keep_flushed(self, interval: float) -> None:
        """Flush what is recorded within *interval* seconds; sleep while nothing is."""
        while True:
            await self._recorded.wait()
            await anyio.sleep(interval)
            self._recorded = anyio.Event()
            for managed in tuple(self._held.values()):
                await managed.flush()


def source_of(session: Snapshottable) -> object:
    """The object the author made: two adaptations of it are the same session."""
    return session.source if isinstance(session, Adapted) else session


async def ask(session: Snapshottable, *, timeout: float) -> SessionSnapshot:  # noqa: ASYNC109 — part of the promise
    """The session as it is now.

    Raises:
        InvalidSnapshot: it returned no snapshot, or the snapshot of another session.
        SnapshotError: its method raised, or did not answer in time.
    """
    session_id = session.session_id
    with anyio.move_on_after(timeout):
        try:
            taken = session.snapshot()
            taken = await taken if inspect.isawaitable(taken) else taken
        except SnapshotError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise SnapshotError(f"session {session_id!r} gave an error: {reason}", session_id=session_id) from error
        return _checked(taken, session_id)
    raise SnapshotError(
        f"session {session_id!r} did not give its snapshot within {timeout:g} s",
        session_id=session_id,
        hint="make its snapshot() quicker, or raise snapshot_timeout",
    )


def _checked(taken: object, session_id: str) -> SessionSnapshot:
    if not isinstance(taken, SessionSnapshot):
        kind = type(taken).__name__
        raise InvalidSnapshot(f"session {session_id!r} gave a {kind}, not a SessionSnapshot", session_id=session_id)
    if taken.session_id != session_id:
        raise InvalidSnapshot(
            f"session {session_id!r} gave the snapshot of session {taken.session_id!r}; it was not saved",
            session_id=session_id,
            hint="set SessionSnapshot.session_id to the session's own id",
        )
    return taken


def is_same(old: SessionSnapshot, new: SessionSnapshot) -> bool:
    """Whether *new* is made of the very objects of *old*, apart from its time. False only means: compare them."""
    if old is new:
        return True
    before, after = old.__dict__, new.__dict__
    return (
        (old.model_extra or {}) == {} == (new.model_extra or {})
        and all(before[name] is after[name] for name in before if name not in ("messages", "updated_at"))
        and len(old.messages) == len(new.messages)
        and all(map(operator.is_, old.messages, new.messages))
    )
