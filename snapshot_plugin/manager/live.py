"""One live session: its snapshot is taken from it and stored, one save at a time."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from snapshot_plugin.errors import Conflict, InvalidSnapshot, SnapshotError
from snapshot_plugin.manager.claim import Claim, Mark
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.labels import apply_label, carried_over, typed_label
from snapshot_plugin.manager.ports import Adapted, Snapshottable
from snapshot_plugin.manager.reporter import Reporter
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

__all__ = ["LiveSession", "Workshop", "source_of", "take"]

_TAKES = 3
"""How often an async snapshot is taken again because records streamed by meanwhile."""


@dataclass(frozen=True)
class Workshop:
    """What every session of a manager works with."""

    store: SnapshotStore
    config: SnapshotConfig
    report: Reporter
    saves: anyio.CapacityLimiter


def source_of(session: Snapshottable) -> object:
    """The object the author made: two adaptations of it are the same session."""
    return session.source if isinstance(session, Adapted) else session


async def take(session: Snapshottable, *, timeout: float) -> SessionSnapshot:  # noqa: ASYNC109 — part of the promise
    """Ask *session* what it is now.

    Raises:
        InvalidSnapshot: what it gave is no snapshot, or that of another session.
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
    raise _silent(session_id, timeout)


def _silent(session_id: str, timeout: float) -> SnapshotError:
    return SnapshotError(
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
    """Whether *new* is made of the very objects of *old*, apart from its time. False only means: look closer."""
    if old is new:
        return True
    before, after = old.__dict__, new.__dict__
    return (
        (old.model_extra or {}) == {} == (new.model_extra or {})
        and all(before[name] is after[name] for name in before if name not in ("messages", "updated_at"))
        and len(old.messages) == len(new.messages)
        and all(map(operator.is_, old.messages, new.messages))
    )


class LiveSession:
    """Takes and stores the snapshots of one session.

    Calls that arrive while a save is under way are answered together by the next one. A save that raises has
    changed nothing here: the next one saves everything.
    """

    def __init__(
        self, session: Snapshottable, shop: Workshop, claim: Claim, *, baseline: StoredSnapshot | None = None
    ) -> None:
        self.session = session
        self.session_id = session.session_id
        self.claim = claim
        self._shop = shop
        self._lock = anyio.Lock()
        self._requested = 0
        self._covered = 0
        self._ref = baseline.ref if baseline else None
        self._restored = baseline.snapshot if baseline else None
        self._label: Mapping[str, Any] = {}
        self._seen: tuple[SessionSnapshot, int, Mapping[str, Any]] | None = None
        if baseline:
            self._seen = (baseline.snapshot, claim.upto, self._label)

    def relabel(self, request: Mapping[str, Any]) -> None:
        """Give the session a label (see `apply_label`) that every snapshot of it carries from now on.

        Raises:
            InvalidInput: it is no label. Nothing has changed.
        """
        self._label = {**self._label, **typed_label(request)}

    async def save(self, trigger: str, tags: Sequence[str] = ()) -> SnapshotRef:
        """Make the session as it is now durable. Raises what `take` and the store raise."""
        self._requested += 1
        ticket = self._requested
        async with self._lock:
            if self._covered >= ticket and not tags and self._ref is not None:
                return self._ref
            covers = self._requested
            self._ref = await self._save(trigger, tuple(tags))
            self._covered = covers
            return self._ref

    async def _save(self, trigger: str, tags: tuple[str, ...]) -> SnapshotRef:
        started = anyio.current_time()
        await self.claim.secure()
        snapshot, mark = await self._take()
        if self._is_seen(snapshot, mark.upto) and not tags and self._ref is not None:
            self._skipped(trigger)
            return self._ref
        label = self._label_for(snapshot)
        async with self._shop.saves:
            ref = await self._store(self.claim.stamped(apply_label(snapshot, label), mark.upto), trigger, tags)
        self._seen = (snapshot, mark.upto, label)
        await self.claim.saved(mark)
        self._report(ref, trigger, tags, anyio.current_time() - started)
        return ref

    async def _take(self) -> tuple[SessionSnapshot, Mark]:
        """The snapshot, and the mark of the newest spool record it contains.

        A plain method answers at once, so nothing can have been recorded meanwhile. If records arrived while
        an async one worked, nobody knows whether it saw them: ask again, and if they never stop, take the
        mark from before, for a word told twice is better than a word lost.
        """
        takes = 0
        while True:
            mark, takes = self.claim.mark, takes + 1
            snapshot = await take(self.session, timeout=self._shop.config.snapshot_timeout)
            if self.claim.mark == mark or takes == _TAKES:
                return snapshot, mark

    def _label_for(self, snapshot: SessionSnapshot) -> Mapping[str, Any]:
        """The label to save it under; a session that was restored and knows of no labels keeps the one it had."""
        if self._restored is not None:
            self._label = {**carried_over(self._restored, snapshot), **self._label}
            self._restored = None
        return self._label

    def _is_seen(self, snapshot: SessionSnapshot, upto: int) -> bool:
        if self._seen is None:
            return False
        seen, seen_upto, seen_label = self._seen
        return upto == seen_upto and seen_label is self._label and is_same(seen, snapshot)

    async def _store(self, snapshot: SessionSnapshot, trigger: str, tags: tuple[str, ...]) -> SnapshotRef:
        store = self._shop.store
        try:
            return await store.save(snapshot, trigger=trigger, tags=tags)
        except Conflict:
            # The owner of the lease is the session: somebody's edit of its record must not stop its saves.
            # That edit stays in the history.
            if not self.claim.is_held:
                raise
            head = await store.read(self.session_id)
            return await store.save(snapshot, trigger=trigger, tags=tags, base=head.ref.seq)

    def _report(self, ref: SnapshotRef, trigger: str, tags: tuple[str, ...], duration: float) -> None:
        if not ref.written:
            self._skipped(trigger)
            return
        self._shop.report.created(ref, trigger=trigger, tags=tags, duration=duration)

    def _skipped(self, trigger: str) -> None:
        self._shop.report.skipped(self.session_id, reason="unchanged", trigger=trigger)
