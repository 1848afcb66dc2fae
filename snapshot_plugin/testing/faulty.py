"""A store that fails when a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import anyio
import anyio.to_thread

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import (
    Capabilities,
    CheckReport,
    Finding,
    ForgetResult,
    SnapshotStore,
    StoredSnapshot,
    Trashed,
)
from snapshot_plugin.store.log import Tip
from snapshot_plugin.store.sync import SyncStore
from snapshot_plugin.store.views import Changes, Page

__all__ = ["Fault", "FaultyCall", "FaultyStore", "every"]

T = TypeVar("T")


class FaultyCall(NamedTuple):
    """One call of a store's method: its number among the calls of that method (from 1), and its session."""

    method: str
    number: int
    session_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The fault of a call: it waits for *hold*, then raises *error*. Either may be omitted.

    With *after*, this happens after the inner store has done its work, as if the answer was lost.
    """

    error: Exception | None = None
    after: bool = False
    hold: anyio.Event | threading.Event | None = None
    """For a call through ``sync``, a `threading.Event`."""

    async def happen(self) -> None:
        """Wait, then raise."""
        if isinstance(self.hold, threading.Event):
            await anyio.to_thread.run_sync(self.hold.wait)
        elif self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error

    def happen_here(self) -> None:
        """Like `happen`, in a thread without an event loop."""
        if isinstance(self.hold, threading.Event):
            self.hold.wait()
        elif self.hold is not None:
            raise InvalidInput("a call through sync can only be held by a threading.Event")
        if self.error is not None:
            raise self.error


Script = Callable[[FaultyCall], Fault | None]


def every(count: int, fault: Fault, *methods: str) -> Script:
    """A script that makes every *count*-th call of each of *methods* fail with *fault*."""
    if count < 1 or not methods:
        raise InvalidInput("a schedule needs a count from 1 on and at least one method")
    return lambda call: fault if call.method in methods and call.number % count == 0 else None


class FaultyStore:
    """Wraps any `SnapshotStore` and injects faults: *script* gets each call and returns its fault, or None.

    ::

        full = Fault(error=StoreUnavailable("disk full"))
        store = FaultyStore(MemoryStore(), every(3, full, "save"))
        store = FaultyStore(MemoryStore(), lambda call: full if call.session_id == "unlucky" else None)

    `calls` lists the calls so far. Closing never fails.
    """

    def __init__(self, inner: SnapshotStore, script: Script = lambda _call: None) -> None:
        self.inner = inner
        self.script = script
        self.calls: list[FaultyCall] = []
        self.sync = _FaultySync(self)

    @property
    def capabilities(self) -> Capabilities:
        """Those of the inner store."""
        return self.inner.capabilities

    def fault_of(self, method: str, session_id: str | None) -> Fault:
        """Record the call, and return its fault."""
        number = 1 + sum(call.method == method for call in self.calls)
        call = FaultyCall(method, number, session_id)
        self.calls.append(call)
        return self.script(call) or Fault()

    async def _through(self, method: str, session_id: str | None, run: Callable[[], Awaitable[T]]) -> T:
        fault = self.fault_of(method, session_id)
        if not fault.after:
            await fault.happen()
        result = await run()
        if fault.after:
            await fault.happen()
        return result

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
        return await self._through(
            "save",
            snapshot.session_id,
            lambda: self.inner.save(snapshot, trigger=trigger, tags=tags, base=base, labels=labels),
        )

    async def load(self, session_id: str, *, at: int | None = None, strict: bool = False) -> SessionSnapshot:
        """See `SnapshotStore.load`."""
        return await self._through("load", session_id, lambda: self.inner.load(session_id, at=at, strict=strict))

    async def read(self, session_id: str, *, at: int | None = None, strict: bool = False) -> StoredSnapshot:
        """See `SnapshotStore.read`."""
        return await self._through("read", session_id, lambda: self.inner.read(session_id, at=at, strict=strict))

    async def tip(self, session_id: str) -> Tip | None:
        """See `SnapshotStore.tip`."""
        return await self._through("tip", session_id, lambda: self.inner.tip(session_id))

    async def page(
        self, session_id: str, *, at: int | None = None, start: int | None = None, count: int = 50
    ) -> Page:
        """See `SnapshotStore.page`."""
        return await self._through(
            "page", session_id, lambda: self.inner.page(session_id, at=at, start=start, count=count)
        )

    async def section(self, session_id: str, *path: str, at: int | None = None) -> Any:
        """See `SnapshotStore.section`."""
        return await self._through("section", session_id, lambda: self.inner.section(session_id, *path, at=at))

    async def changes(self, session_id: str, since: int, *, at: int | None = None) -> Changes:
        """See `SnapshotStore.changes`."""
        return await self._through("changes", session_id, lambda: self.inner.changes(session_id, since, at=at))

    async def walk(self, session_id: str, seqs: Sequence[int]) -> Sequence[SessionSnapshot]:
        """See `SnapshotStore.walk`."""
        return await self._through("walk", session_id, lambda: self.inner.walk(session_id, seqs))

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """See `SnapshotStore.list`."""
        return await self._through("list", None, lambda: self.inner.list(labels=labels))

    async def history(self, session_id: str, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """See `SnapshotStore.history`."""
        return await self._through("history", session_id, lambda: self.inner.history(session_id, labels=labels))

    async def delete(self, session_id: str, *, purge: bool = False) -> Trashed:
        """See `SnapshotStore.delete`."""
        return await self._through("delete", session_id, lambda: self.inner.delete(session_id, purge=purge))

    async def trash(self) -> Sequence[Trashed]:
        """See `SnapshotStore.trash`."""
        return await self._through("trash", None, self.inner.trash)

    async def undelete(self, token: str, *, session_id: str | None = None) -> str:
        """See `SnapshotStore.undelete`."""
        return await self._through("undelete", None, lambda: self.inner.undelete(token, session_id=session_id))

    async def purge(self, *, older_than: timedelta | None = None, now: datetime | None = None) -> Sequence[Trashed]:
        """See `SnapshotStore.purge`. The default grace period is that of the inner store."""
        if older_than is None:
            return await self._through("purge", None, lambda: self.inner.purge(now=now))
        return await self._through("purge", None, lambda: self.inner.purge(older_than=older_than, now=now))

    async def forget(
        self,
        session_id: str,
        policy: RetentionPolicy | None = None,
        *,
        seqs: Collection[int] = (),
        dry_run: bool = False,
    ) -> ForgetResult:
        """See `SnapshotStore.forget`."""
        return await self._through(
            "forget", session_id, lambda: self.inner.forget(session_id, policy, seqs=seqs, dry_run=dry_run)
        )

    async def check(self, session_id: str | None = None, *, repair: bool = False) -> CheckReport:
        """See `SnapshotStore.check`."""
        return await self._through("check", session_id, lambda: self.inner.check(session_id, repair=repair))

    async def quarantined(self, session_id: str | None = None) -> Sequence[Finding]:
        """See `SnapshotStore.quarantined`."""
        return await self._through("quarantined", session_id, lambda: self.inner.quarantined(session_id))

    async def salvage(self, session_id: str) -> SnapshotRef | None:
        """See `SnapshotStore.salvage`."""
        return await self._through("salvage", session_id, lambda: self.inner.salvage(session_id))

    async def aclose(self) -> None:
        """Close the inner store."""
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)


class _FaultySync(SyncStore):
    """The synchronous face of the inner store, with the faults of the outer one."""

    def __init__(self, faulty: FaultyStore) -> None:
        self._faulty, self._inner = faulty, faulty.inner.sync
        super().__init__(self._inner._store)  # noqa: SLF001 — the same class

    def _run(self, work: Callable[..., T], *args: Any) -> T:
        return self._through(None, work, partial(self._inner._run, work, *args))  # noqa: SLF001

    def _in_turn(self, session_id: str, work: Callable[..., T], *args: Any) -> T:
        run = partial(self._inner._in_turn, session_id, work, *args)  # noqa: SLF001
        return self._through(session_id, work, run)

    def _through(self, session_id: str | None, work: Callable[..., T], run: Callable[[], T]) -> T:
        fault = self._faulty.fault_of(work.__name__, session_id)
        if not fault.after:
            fault.happen_here()
        result = run()
        if fault.after:
            fault.happen_here()
        return result

    def close(self) -> None:
        """Close the inner store."""
        self._inner.close()
