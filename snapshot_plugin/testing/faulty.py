"""A store that fails when a test tells it to."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import anyio
import anyio.to_thread

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import (
    Capabilities,
    SnapshotStore,
)
from snapshot_plugin.store.sync import SyncStore

__all__ = ["Fault", "FaultyCall", "FaultyStore", "every"]

P = ParamSpec("P")
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
    """A call through ``sync``, as a manager makes them, looks at an `anyio.Event` a hundred times a second."""

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
        while self.hold is not None and not self.hold.is_set():
            time.sleep(0.01)
        if self.error is not None:
            raise self.error


Script = Callable[[FaultyCall], Fault | None]


def every(count: int, fault: Fault, *methods: str) -> Script:
    """A script that makes every *count*-th call of each of *methods* fail with *fault*."""
    if count < 1 or not methods:
        raise InvalidInput("a schedule needs a count from 1 on and at least one method")
    return lambda call: fault if call.method in methods and call.number % count == 0 else None


def _through(
    method: Callable[Concatenate[SnapshotStore, P], Awaitable[T]],
) -> Callable[Concatenate[FaultyStore, P], Coroutine[Any, Any, T]]:
    """*method* of the inner store, with the fault that the script has for the call."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: FaultyStore, /, *args: P.args, **options: P.kwargs) -> T:
        first = args[0] if args else options.get("session_id")
        session_id = first.session_id if isinstance(first, SessionSnapshot) else first
        fault = self.fault_of(name, session_id if isinstance(session_id, str) and name != "undelete" else None)
        if not fault.after:
            await fault.happen()
        result: T = await getattr(self.inner, name)(*args, **options)
        if fault.after:
            await fault.happen()
        return result

    return call


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

    save = _through(SnapshotStore.save)
    load = _through(SnapshotStore.load)
    read = _through(SnapshotStore.read)
    tip = _through(SnapshotStore.tip)
    page = _through(SnapshotStore.page)
    section = _through(SnapshotStore.section)
    walk = _through(SnapshotStore.walk)
    list = _through(SnapshotStore.list)
    history = _through(SnapshotStore.history)
    delete = _through(SnapshotStore.delete)
    trash = _through(SnapshotStore.trash)
    undelete = _through(SnapshotStore.undelete)
    purge = _through(SnapshotStore.purge)
    forget = _through(SnapshotStore.forget)
    check = _through(SnapshotStore.check)
    quarantined = _through(SnapshotStore.quarantined)
    salvage = _through(SnapshotStore.salvage)

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
        super().__init__(self._inner.store)

    def run(self, method: str, session_id: str | None, work: Callable[[], T]) -> T:
        """See `SyncStore`."""
        fault = self._faulty.fault_of(method, session_id)
        if not fault.after:
            fault.happen_here()
        result = self._inner.run(method, session_id, work)
        if fault.after:
            fault.happen_here()
        return result

    def close(self) -> None:
        """Close the inner store."""
        self._inner.close()
