"""Work that asks the store and touches files, written once and run by threads and by event loops.

Such work is a generator: it yields what has to be done elsewhere and is sent the result. `run` does it in the
calling thread, with a synchronous store; `run_async` awaits the store and moves file work to a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot, Trashed

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

__all__ = ["Blocking", "Steps", "StoreCall", "StoreMethods", "has_sync_face", "run", "run_async", "sync_face"]

T = TypeVar("T")


class StoreMethods(Protocol):
    """What live sessions ask of a store, without an event loop; any thread may call it."""

    def save(
        self,
        snapshot: SessionSnapshot,
        *,
        trigger: str = ...,
        tags: Sequence[str] = ...,
        base: int | None = ...,
        labels: Mapping[str, str] | None = ...,
    ) -> SnapshotRef:
        """See `SnapshotStore.save`."""

    def read(self, session_id: str, *, at: int | None = ..., strict: bool = ...) -> StoredSnapshot:
        """See `SnapshotStore.read`."""

    def list(self) -> Sequence[SnapshotMeta]:
        """See `SnapshotStore.list`."""

    def history(self, session_id: str) -> Sequence[SnapshotMeta]:
        """See `SnapshotStore.history`."""

    def delete(self, session_id: str) -> Trashed:
        """See `SnapshotStore.delete`."""

    def trash(self) -> Sequence[Trashed]:
        """See `SnapshotStore.trash`."""

    def trashed_labels(self, entry: Trashed) -> Mapping[str, str]:
        """The labels of the newest snapshot of a session in the trash."""


class StoreCall(NamedTuple):
    """Call *method* of the store."""

    method: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}


class Blocking(NamedTuple):
    """Call *work*, which may block. *lost* gets the result if a cancellation prevents returning it."""

    work: Callable[..., Any]
    args: tuple[Any, ...] = ()
    lost: Callable[[Any], object] | None = None


Steps = Generator[StoreCall | Blocking, Any, T]


def run(steps: Steps[T], store: StoreMethods | None) -> T:
    """Carry out *steps* in this thread; what they return, or raise."""

    def carry_out(step: StoreCall | Blocking) -> Any:
        if isinstance(step, StoreCall):
            return getattr(store, step.method)(*step.args, **step.options)
        return step.work(*step.args)

    try:
        step = next(steps)
        while True:
            try:
                result = carry_out(step)
            except BaseException as error:  # noqa: BLE001 — the steps decide what it means
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def run_async(steps: Steps[T], store: SnapshotStore) -> T:
    """Carry out *steps* from an event loop, which is never blocked; what they return, or raise."""
    from snapshot_plugin.store.hop import in_thread  # noqa: PLC0415 — brings asyncio, which lists do without

    async def carry_out(step: StoreCall | Blocking) -> Any:
        if isinstance(step, StoreCall):
            return await getattr(store, step.method)(*step.args, **step.options)
        return await in_thread(step.work, *step.args, lost=step.lost)

    try:
        step = next(steps)
        while True:
            try:
                result = await carry_out(step)
            except BaseException as error:  # noqa: BLE001 — the steps decide; a cancellation passes through them
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


def has_sync_face(store: SnapshotStore) -> bool:
    """Whether `sync_face` needs no portal for *store*."""
    return hasattr(store, "sync")


def sync_face(store: SnapshotStore, portal: BlockingPortal | None = None) -> StoreMethods:
    """*store* without an event loop: its own synchronous face, or its methods called in *portal*'s loop.

    Raises:
        InvalidInput: it has no such face, and there is no *portal*.
    """
    own = getattr(store, "sync", None)
    if own is not None:
        face: StoreMethods = own
        return face
    if portal is None:
        raise InvalidInput(f"a {type(store).__name__} can only be used from an event loop", hint="pass its portal")
    return _PortalFace(store, portal)


class _PortalFace:
    """Calls an async store in the event loop it belongs to."""

    def __init__(self, store: SnapshotStore, portal: BlockingPortal) -> None:
        self._store, self._portal = store, portal

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)
        return lambda *args, **options: self._portal.call(partial(method, *args, **options))
