"""The synchronous face of a store, for threads that have no event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from snapshot_plugin.errors import InvalidInput, StoreUnavailable
from snapshot_plugin.live.steps import SyncStore
from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot, Trashed
from snapshot_plugin.store.engine import LogStore

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

__all__ = ["has_sync_face", "sync_face"]

T = TypeVar("T")


def has_sync_face(store: SnapshotStore) -> bool:
    """Whether `sync_face` needs no portal for *store*."""
    return hasattr(store, "sync") or isinstance(store, LogStore)


def sync_face(store: SnapshotStore, portal: BlockingPortal | None = None) -> SyncStore:
    """*store* without an event loop: its own synchronous face, or its methods called in *portal*'s loop.

    Raises:
        InvalidInput: it has no such face, and there is no *portal*.
    """
    own = getattr(store, "sync", None)
    if own is not None:
        face: SyncStore = own
        return face
    if isinstance(store, LogStore):
        return _LogFace(store)
    if portal is None:
        raise InvalidInput(f"a {type(store).__name__} can only be used from an event loop", hint="pass its portal")
    return _PortalFace(store, portal)


class _LogFace:
    """Calls the synchronous methods of a `LogStore`. Goes once the store brings ``sync`` itself."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._turns: dict[str, threading.Lock] = {}

    def save(
        self,
        snapshot: SessionSnapshot,
        *,
        trigger: str = "manual",
        tags: Sequence[str] = (),
        base: int | None = None,
    ) -> SnapshotRef:
        return self._call(self._store._save, snapshot.session_id, snapshot, trigger, tuple(tags), base)  # noqa: SLF001

    def read(self, session_id: str, *, at: int | None = None, strict: bool = False) -> StoredSnapshot:
        return self._call(self._store._read, session_id, session_id, at, strict)  # noqa: SLF001

    def list(self) -> Sequence[SnapshotMeta]:
        return self._call(self._store.listed, "")

    def history(self, session_id: str) -> Sequence[SnapshotMeta]:
        return self._call(self._store._history, session_id, session_id)  # noqa: SLF001

    def delete(self, session_id: str) -> Trashed:
        return self._call(self._store._delete, session_id, session_id)  # noqa: SLF001

    def trash(self) -> Sequence[Trashed]:
        return self._call(self._store._log.trash, "")  # noqa: SLF001

    def _call(self, work: Callable[..., T], turn: str, *args: Any) -> T:
        if self._store._closed:  # noqa: SLF001
            raise StoreUnavailable("the store was closed", hint="open it again")
        with self._turns.setdefault(turn, threading.Lock()):
            return self._store._prepared(work, args)  # noqa: SLF001


class _PortalFace:
    """Calls an async store in the event loop it belongs to."""

    def __init__(self, store: SnapshotStore, portal: BlockingPortal) -> None:
        self._store, self._portal = store, portal

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)
        return lambda *args, **options: self._portal.call(partial(method, *args, **options))
