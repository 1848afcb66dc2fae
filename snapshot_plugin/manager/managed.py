"""One live session of a manager: a `LiveSession` with the state of the caller's session object.

The session object is asked for its snapshot, and whether it changed.
"""

from __future__ import annotations

import inspect
import json
import math
import operator
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.abc

from snapshot_plugin.errors import InvalidSnapshot, SnapshotError, StoreUnavailable
from snapshot_plugin.live.blocking import in_thread_with
from snapshot_plugin.live.events import Reporter
from snapshot_plugin.live.label import apply_label, carried_over, typed_label
from snapshot_plugin.live.ports import LiveContext
from snapshot_plugin.live.schedule import STUCK
from snapshot_plugin.live.session import LiveSession, Mark
from snapshot_plugin.live.spool import encoded
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.events import LoopCalls
from snapshot_plugin.manager.ports import Adapted, Snapshottable, is_failure
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot
from snapshot_plugin.store.hop import Deadline, in_thread

__all__ = ["ManagedSession", "ManagerContext", "SaveSlots", "ask", "is_same", "source_of"]

T = TypeVar("T")
_SPOOL = 5.0
"""Seconds until a record that is not spooled yet counts as not spooled."""
_TAKES = 3
"""How often an async snapshot is repeated because records arrived meanwhile."""


class SaveSlots:
    """Lets a few saves run at once, in the order in which they were requested.

    A save that takes longer than `STUCK` seconds waits for a lock or a disk: it does not count any more, so that it
    does not hold up the saves of other sessions.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._entering = anyio.Lock()
        self._began: dict[object, float] = {}
        self._ended = anyio.Event()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot, and keep it for the ``async with`` block."""
        save = object()
        async with self._entering:
            while (wait := self._free_at() - anyio.current_time()) > 0:
                self._ended = anyio.Event()
                with anyio.move_on_after(wait):
                    await self._ended.wait()
            self._began[save] = anyio.current_time()
        try:
            yield
        finally:
            del self._began[save]
            self._ended.set()

    def _free_at(self) -> float:
        """When the next save may begin: one of the newest *count* must end, or be stuck."""
        newest = sorted(self._began.values())[-self.count :]
        return newest[0] + STUCK if len(newest) == self.count else -math.inf


@dataclass(frozen=True)
class ManagerContext:
    """What all sessions of a manager share."""

    store: SnapshotStore
    config: SnapshotConfig
    report: Reporter
    saves: SaveSlots
    live: LiveContext
    in_loop: LoopCalls
    deadline: Deadline = field(default_factory=Deadline)
    """Of the manager's own tasks. The task that saves a session has one of its own."""
    swept: dict[str, anyio.Event] = field(default_factory=dict)
    """The sessions whose leases the retention of this manager has just now; each event is set when it is done."""


class _Seen(NamedTuple):
    """The source of the newest snapshot."""

    snapshot: SessionSnapshot
    upto: int


class _Spooling:
    """A record on its way to the spool."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.ended = anyio.Event()
        self.is_spooled = False


class ManagedSession:
    """One live session of a manager. Its lease is not taken before `take` or the first save.

    Calls to `save` during a save are coalesced into the next one. A save that raises has changed nothing: the next
    one saves everything.
    """

    def __init__(self, session_id: str, context: ManagerContext) -> None:
        self.session_id = session_id
        self.live = LiveSession(session_id, context.live, keep_label=partial(context.in_loop, self._lay_over))
        self.holders = 0
        self.starting = anyio.Lock()
        """Held by a caller that starts the session: one at a time."""
        self._context = context
        self._taking, self._saving = anyio.Lock(), anyio.Lock()
        self._requested = self._covered = 0
        self._source: object = None
        self._seen: _Seen | None = None
        self._overlay: Mapping[str, Any] = {}
        """Labels and the current task, which every snapshot of the session object gets."""
        self._saved_overlay: Mapping[str, Any] = self._overlay
        self._spooling: list[_Spooling] = []
        self._newest: _Spooling | None = None
        self._is_spooling = False
        self._restored: SessionSnapshot | None = None
        """What the session continues from, until the first save: objects without labels keep those of this."""

    async def take(self) -> None:
        """Take the lease, and recover the records of an earlier owner. A valid lease is kept.

        Raises:
            SessionLocked: another process owns the session.
            StoreUnavailable: the disk refused; try again.
        """
        async with self._taking:
            if swept := self._context.swept.get(self.session_id):
                await swept.wait()
            await self._in_thread(self._take, lost=self._give_back)

    def _take(self) -> bool:
        """In a thread: take the lease. Returns whether it was not held before."""
        before = self.live.hold
        self.live.take()
        return before is None and self.live.hold is not None

    def _give_back(self, is_new: bool) -> None:
        if is_new:
            self.live.hand_back()

    async def _in_thread(self, work: Callable[..., T], *args: Any, lost: Callable[[T], object] | None = None) -> T:
        """Do work of the live session in one hop. What it reports is delivered in this event loop."""
        self._context.in_loop.use_this()
        return await in_thread_with(self._context.live.store, work, *args, lost=lost)

    async def try_to_take(self) -> None:
        """Like `take`, but a failing disk is only reported: the session starts, and every save tries again."""
        try:
            await self.take()
        except StoreUnavailable as error:
            self.live.failed("spool", error)

    async def spool(self, record: Mapping[str, Any], tasks: anyio.abc.TaskGroup) -> bool:
        """Spool *record* without blocking the event loop; see `SnapshotManager.spool`."""
        spooling = self.spool_soon(record, tasks)
        with anyio.move_on_after(_SPOOL):
            await spooling.ended.wait()
        return spooling.is_spooled

    def spool_soon(self, record: Mapping[str, Any], tasks: anyio.abc.TaskGroup) -> _Spooling:
        """Spool *record* in a task of *tasks*, after all records before it.

        Raises:
            InvalidInput: the record is not JSON.
        """
        copied = json.loads(encoded(record, self.session_id))  # the caller may change it meanwhile
        spooling = _Spooling(copied)
        self._spooling.append(spooling)
        self._newest = spooling
        if not self._is_spooling:
            self._is_spooling = True
            with self._context.deadline.applies():
                tasks.start_soon(self._spool_all)
        return spooling

    async def _spool_all(self) -> None:
        """Spool what waits, in one write for all records that arrived during the last one."""
        try:
            while batch := self._spooling:
                self._spooling = []
                try:
                    is_spooled = await in_thread(self.live.record_all, [each.record for each in batch])
                except Exception as error:  # noqa: BLE001 — no failure may end the task; the caller gets False
                    self._context.report.failed(self.session_id, "spool", error)
                    is_spooled = False
                for each in batch:
                    each.is_spooled = is_spooled
                    each.ended.set()
        finally:
            self._is_spooling = False

    async def _spooled(self) -> None:
        """Wait until no record is on its way: a snapshot taken now would contain it, and so would the spool."""
        for _ in range(_TAKES):
            if self._newest is not None:
                await self._newest.ended.wait()

    async def release(self, within: float = math.inf) -> None:
        """Release the lease after a clean stop. `take` takes it again.

        If the disk hangs, the release is abandoned: its thread releases the lease later, or the process as it ends.
        """
        deadline = Deadline()
        with anyio.move_on_after(within), deadline.applies():
            deadline.set(within)
            async with self._taking:
                await in_thread(self.live.release)

    def continue_from(self, session: Snapshottable, stored: StoredSnapshot | None) -> None:
        """Mark *session* as equal to *stored*, so that it is saved only after it changes."""
        ref = self.live.ref
        if stored is not None and (ref is None or ref.seq <= stored.ref.seq):
            self.live.continue_from(stored)
            self._restored = stored.snapshot
            self._source = source_of(session)
            self._seen = _Seen(stored.snapshot, self.live.mark.upto)

    def relabel(self, request: Mapping[str, Any]) -> None:
        """Set the label in *request*; every later snapshot carries it.

        Raises:
            InvalidInput: the label is invalid. Nothing has changed.
        """
        self._lay_over(typed_label(request))

    def set_current_task(self, task: str | None) -> None:
        """Set the current task; every snapshot carries it until the next call."""
        self._lay_over({"current_task": task})

    def _lay_over(self, fields: Mapping[str, Any]) -> None:
        self._overlay = {**self._overlay, **fields}

    async def save(self, session: Snapshottable, trigger: str, tags: Sequence[str] = ()) -> SnapshotRef:
        """Save the current state of *session*; durable on return. Raises what `ask` and the store raise."""
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
        if self.live.hold is None and self._context.live.place is not None:
            await self.take()
        snapshot, mark = await self._taken(session)
        newest = self.live.ref
        is_saved = newest is not None and not tags and not self.live.is_behind
        if newest is not None and is_saved and self._is_seen(snapshot, mark):  # without asking the disk
            self._context.report.skipped(self.session_id, reason="unchanged", trigger=trigger)
            return newest
        if self._restored is not None:
            self._overlay = {**carried_over(self._restored, snapshot), **self._overlay}
            self._restored = None
        overlay = self._overlay
        async with self._context.saves.slot():
            labelled = _laid_over(snapshot, overlay)
            ref = await self._in_thread(self.live.save_snapshot, labelled, mark, trigger, tags)
        self._seen, self._saved_overlay = _Seen(snapshot, mark.upto), overlay
        return ref

    async def _taken(self, session: Snapshottable) -> tuple[SessionSnapshot, Mark]:
        """The snapshot, and the mark of the newest record it contains.

        A plain method returns immediately, so no record can arrive meanwhile. If records arrive during an async
        one, the snapshot may lack them: it is taken again. If they never stop, the mark from before is used,
        because applying a record twice is better than losing it.
        """
        takes = 0
        while True:
            await self._spooled()
            mark, takes = self.live.mark, takes + 1
            snapshot = await ask(session, timeout=self._context.config.snapshot_timeout)
            if self.live.mark == mark or takes == _TAKES:
                return snapshot, mark

    def _is_seen(self, snapshot: SessionSnapshot, mark: Mark) -> bool:
        if self._seen is None or self._saved_overlay is not self._overlay:
            return False
        return mark.upto == self._seen.upto and is_same(self._seen.snapshot, snapshot)


def _laid_over(snapshot: SessionSnapshot, overlay: Mapping[str, Any]) -> SessionSnapshot:
    labelled = apply_label(snapshot, overlay)
    if overlay.get("current_task", snapshot.current_task) == snapshot.current_task:
        return labelled
    return labelled.evolve(current_task=overlay["current_task"])


def source_of(session: Snapshottable) -> object:
    """The caller's original object: two adaptations of it are the same session."""
    return session.source if isinstance(session, Adapted) else session


async def ask(session: Snapshottable, *, timeout: float) -> SessionSnapshot:  # noqa: ASYNC109 — part of the promise
    """Call the session's ``snapshot()``.

    Raises:
        InvalidSnapshot: it returned no snapshot, or the snapshot of another session.
        SnapshotError: the method raised, or timed out.
    """
    session_id = session.session_id
    with anyio.move_on_after(timeout):
        try:
            taken = session.snapshot()
            taken = await taken if inspect.isawaitable(taken) else taken
        except BaseException as error:
            if isinstance(error, SnapshotError) or not is_failure(error):
                raise
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
    """Whether *new* has the same objects as *old*, apart from its time. False means that they must be compared."""
    if old is new:
        return True
    before, after = old.__dict__, new.__dict__
    return (
        (old.model_extra or {}) == {} == (new.model_extra or {})
        and all(before[name] is after[name] for name in before if name not in ("messages", "updated_at"))
        and len(old.messages) == len(new.messages)
        and all(map(operator.is_, old.messages, new.messages))
    )
