"""The store without an event loop: every operation as a plain call, from any thread.

`Turns` makes calls for one session run one at a time; both the plain and the asynchronous calls use it.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from snapshot_plugin.store.base import CheckReport
from snapshot_plugin.store.check import repairable
from snapshot_plugin.store.core import StoreCore
from snapshot_plugin.store.faces import blocking, in_turn
from snapshot_plugin.store.log import Tip
from snapshot_plugin.system import forks

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
        self.store = store

    save = blocking(StoreCore.save)
    load = blocking(StoreCore.load)
    read = blocking(StoreCore.read)
    tip = blocking(StoreCore.tip)
    page = blocking(StoreCore.page)
    lines = blocking(StoreCore.lines)
    section = blocking(StoreCore.section)
    walk = blocking(StoreCore.walk)
    list = blocking(StoreCore.list, turn=False)
    history = blocking(StoreCore.history)
    delete = blocking(StoreCore.delete)
    trash = blocking(StoreCore.trash, turn=False)
    trashed_labels = blocking(StoreCore.trashed_labels, turn=False)
    undelete = blocking(StoreCore.undelete, turn=False)
    purge = blocking(StoreCore.purge, turn=False)
    forget = blocking(StoreCore.forget)
    drop = blocking(StoreCore.drop)
    undrop = blocking(StoreCore.undrop)
    quarantined = blocking(StoreCore.quarantined, turn=False)
    salvage = blocking(StoreCore.salvage)
    compact = blocking(StoreCore.compact)
    take_out = blocking(StoreCore.take_out)
    put_in = blocking(StoreCore.put_in)

    def saved_tip(self, session_id: str) -> Tip | None:
        """The number and id of the last save through this store object, from memory; None if it is not remembered.

        A session is as this object saved it if `tip` returns the same.
        """
        return self.store.core.saved_tip(session_id)

    def check(self, session_id: str | None = None, *, repair: bool = False) -> CheckReport:
        """See `SnapshotStore.check`."""
        core = self.store.core
        report = self.run("check", None, partial(core.check, session_id))
        damaged = repairable(report) if repair else ()
        repaired = [self.run("check", each, partial(core.repairs.repair, each)) for each in damaged]
        return report.evolve(repaired=tuple(repaired))

    def run(self, method: str, session_id: str | None, work: Callable[[], T]) -> T:
        """Do the *work* of *method* in this thread; for a session, in its turn."""
        _ = method
        return self.store.prepared(work) if session_id is None else in_turn(self.store, session_id, work)

    def close(self) -> None:
        """Close the store, for both faces; see `SnapshotStore.aclose`."""
        self.store.close()

    def __enter__(self) -> Self:
        self.store.prepared(lambda: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
