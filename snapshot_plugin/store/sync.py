"""The store without an event loop: every operation as a plain call, from any thread.

`Turns` makes calls for one session run one at a time; both the plain and the asynchronous calls use it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from snapshot_plugin import forks
from snapshot_plugin.model.ids import check_session_id
from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.arguments import no_snapshot
from snapshot_plugin.store.base import GRACE, CheckReport, Finding, ForgetResult, StoredSnapshot, Trashed
from snapshot_plugin.store.check import repairable
from snapshot_plugin.store.log import Tip
from snapshot_plugin.store.transfer import Copied, copies_in_trash
from snapshot_plugin.store.views import Changes, Page, StoredLines

if TYPE_CHECKING:
    from snapshot_plugin.store.engine import LogStore

__all__ = ["SyncStore", "Turns"]

T = TypeVar("T")


class Sleeper(Protocol):
    """A thread or a task that waits for its turn; a `threading.Event` is one."""

    def set(self) -> None:
        """Wake it."""


S = TypeVar("S", bound=Sleeper)


class Turns:
    """Runs the calls for each session one at a time, in the order in which they were made.

    Works across threads and event loops. A session takes memory here only while a call of it is under way.
    """

    def __init__(self) -> None:
        self._guard = forks.lock()
        self._waiting: dict[str, deque[Sleeper]] = {}

    def enter(self, session_id: str, make: Callable[[], S]) -> S | None:
        """Take the session's turn: None if it was free, else a sleeper in the queue, which is woken in its turn."""
        with self._guard:
            queue = self._waiting.get(session_id)
            if queue is None:
                self._waiting[session_id] = deque()
                return None
            sleeper = make()
            queue.append(sleeper)
            return sleeper

    def leave(self, session_id: str) -> None:
        """Give the turn to the next in the queue. One whose event loop is closed is skipped."""
        while True:
            with self._guard:
                queue = self._waiting[session_id]
                if not queue:
                    del self._waiting[session_id]
                    return
                sleeper = queue.popleft()
            with contextlib.suppress(RuntimeError):
                sleeper.set()
                return

    def withdraw(self, session_id: str, sleeper: Sleeper) -> None:
        """Leave the queue; if the turn came meanwhile, pass it on."""
        with self._guard:
            queue = self._waiting[session_id]
            if sleeper in queue:
                queue.remove(sleeper)
                return
        self.leave(session_id)


class SyncStore:
    """The methods of `SnapshotStore` as plain calls: no event loop, any thread. `LogStore.sync` is one.

    Promises and errors are those of `snapshot_plugin.store.base`. Calls for one session happen one at a time, in
    the order in which they were made, together with those made through the asynchronous face. A call blocks its
    thread until it is done, so do not make one on an event loop.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def _run(self, work: Callable[..., T], *args: Any) -> T:
        return self._store.prepared(work, args)

    def _in_turn(self, session_id: str, work: Callable[..., T], *args: Any) -> T:
        turns = self._store.turns
        if event := turns.enter(check_session_id(session_id), threading.Event):
            try:
                event.wait()
            except BaseException:  # Ctrl-C
                turns.withdraw(session_id, event)
                raise
        try:
            return self._store.prepared(work, args)
        finally:
            turns.leave(session_id)

    def save(
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
        return self._in_turn(snapshot.session_id, self._store.core.save, *args)

    def load(self, session_id: str, *, at: int | None = None, strict: bool = False) -> SessionSnapshot:
        """See `SnapshotStore.load`."""
        return self._in_turn(session_id, self._store.core.load, session_id, at, strict)

    def read(self, session_id: str, *, at: int | None = None, strict: bool = False) -> StoredSnapshot:
        """See `SnapshotStore.read`."""
        return self._in_turn(session_id, self._store.core.read, session_id, at, strict)

    def tip(self, session_id: str) -> Tip | None:
        """See `SnapshotStore.tip`."""
        return self._in_turn(session_id, self._store.core.tip, session_id)

    def saved_tip(self, session_id: str) -> Tip | None:
        """The number and id of the last save through this store object, from memory; None if it is not remembered.

        A session is as this object saved it if `tip` returns the same.
        """
        return self._store.core.saved_tip(session_id)

    def page(self, session_id: str, *, at: int | None = None, start: int | None = None, count: int = 50) -> Page:
        """See `SnapshotStore.page`."""
        return self._in_turn(session_id, self._store.core.page, session_id, at, start, count)

    def lines(self, session_id: str, *, at: int | None = None) -> StoredLines:
        """See `LogStore.lines`."""
        return self._in_turn(session_id, self._store.core.lines, session_id, at)

    def section(self, session_id: str, *path: str, at: int | None = None) -> Any:
        """See `SnapshotStore.section`."""
        return self._in_turn(session_id, self._store.core.section, session_id, path, at)

    def changes(self, session_id: str, since: int, *, at: int | None = None) -> Changes:
        """See `SnapshotStore.changes`."""
        return self._in_turn(session_id, self._store.core.changes, session_id, since, at)

    def walk(self, session_id: str, seqs: Sequence[int]) -> Sequence[SessionSnapshot]:
        """See `SnapshotStore.walk`."""
        return self._in_turn(session_id, self._store.core.walk, session_id, seqs)

    def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """See `SnapshotStore.list`."""
        return self._run(self._store.core.list, labels or {})

    def history(self, session_id: str, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """See `SnapshotStore.history`."""
        return self._in_turn(session_id, self._store.core.history, session_id, labels or {})

    def delete(self, session_id: str, *, purge: bool = False) -> Trashed:
        """See `SnapshotStore.delete`."""
        return self._in_turn(session_id, self._store.core.delete, session_id, purge)

    def trash(self) -> Sequence[Trashed]:
        """See `SnapshotStore.trash`."""
        return self._run(self._store.core.trash)

    def trashed_labels(self, entry: Trashed) -> Mapping[str, str]:
        """The labels of the newest snapshot of a session in the trash."""
        keys = self._store.session_keys(entry.session_id)
        newest = self._run(copies_in_trash, self._store.frames, entry, keys)[-1]
        labels: Mapping[str, str] = newest.header.other.get("labels") or {}
        return labels

    def undelete(self, token: str, *, session_id: str | None = None) -> str:
        """See `SnapshotStore.undelete`."""
        return self._run(self._store.core.undelete, token, session_id)

    def purge(self, *, older_than: timedelta = GRACE, now: datetime | None = None) -> Sequence[Trashed]:
        """See `SnapshotStore.purge`."""
        return self._run(self._store.core.purge, older_than, now)

    def forget(
        self,
        session_id: str,
        policy: RetentionPolicy | None = None,
        *,
        seqs: Collection[int] = (),
        dry_run: bool = False,
    ) -> ForgetResult:
        """See `SnapshotStore.forget`."""
        return self._in_turn(session_id, self._store.core.forget, session_id, policy, seqs, dry_run)

    def drop(self, session_id: str, seqs: Collection[int]) -> Trashed:
        """See `LogStore.drop`."""
        return self._in_turn(session_id, self._store.core.drop, session_id, seqs)

    def undrop(self, session_id: str, token: str) -> Sequence[int]:
        """See `LogStore.undrop`."""
        return self._in_turn(session_id, self._store.core.undrop, session_id, token)

    def check(self, session_id: str | None = None, *, repair: bool = False) -> CheckReport:
        """See `SnapshotStore.check`."""
        report = self._run(self._store.core.check, session_id)
        damaged = repairable(report) if repair else ()
        return report.evolve(
            repaired=tuple(self._in_turn(each, self._store.core.repairs.repair, each) for each in damaged)
        )

    def quarantined(self, session_id: str | None = None) -> Sequence[Finding]:
        """See `SnapshotStore.quarantined`."""
        return self._run(self._store.core.quarantined, session_id)

    def salvage(self, session_id: str) -> SnapshotRef | None:
        """See `SnapshotStore.salvage`."""
        return self._in_turn(session_id, self._store.core.repairs.salvage, session_id)

    def compact(self, session_id: str) -> None:
        """See `LogStore.compact`."""
        self._in_turn(session_id, self._store.core.compact, session_id)

    def take_out(self, session_id: str) -> Sequence[Copied]:
        """See `LogStore.take_out`."""
        return self._in_turn(session_id, self._store.core.take_out, session_id)

    def put_in(self, session_id: str, copies: Sequence[Copied], *, instead_of: Sequence[Copied] = ()) -> None:
        """See `LogStore.put_in`."""
        self._in_turn(session_id, self._store.core.put_in, session_id, copies, instead_of)

    def close(self) -> None:
        """Close the store, for both faces; see `SnapshotStore.aclose`."""
        self._store.close()

    def __enter__(self) -> Self:
        self._run(lambda: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
