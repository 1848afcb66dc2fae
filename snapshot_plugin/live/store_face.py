"""The synchronous face of a store, for threads that have no event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.live.steps import StoreMethods
from snapshot_plugin.store.base import SnapshotStore

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

__all__ = ["has_sync_face", "sync_face"]


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
