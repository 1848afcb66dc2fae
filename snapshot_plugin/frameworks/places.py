"""One open store per place and key in a process."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.store import is_url, open_store
from snapshot_plugin.store.sync import SyncStore

if TYPE_CHECKING:
    from snapshot_plugin.codec.sources import KeySource
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Place", "open_place"]

Place = "str | os.PathLike[str] | SnapshotStore | SyncStore"
"""A directory, a URL, or a store that is open already."""

_OPEN: WeakValueDictionary[Any, Any] = WeakValueDictionary()
_LOCK = threading.Lock()


def open_place(
    place: str | os.PathLike[str] | SnapshotStore | SyncStore, key: str | KeySource | None = None
) -> SyncStore:
    """The store at *place*, opened once for everybody in this process who names the same place and key.

    Raises:
        InvalidInput: *place* is an open store, and a key is given as well.
    """
    if isinstance(place, str | os.PathLike):
        return _shared(place, key).sync
    if key is not None:
        raise InvalidInput("a key cannot be given for a store that is open", hint="open the store with the key")
    return place if isinstance(place, SyncStore) else place.sync


def _shared(place: str | os.PathLike[str], key: str | KeySource | None) -> SnapshotStore:
    named = place if isinstance(place, str) and is_url(place) else os.path.realpath(os.fspath(place))
    if named in ("memory:", "memory://"):
        return open_store(named, key=key)
    with _LOCK:
        store: SnapshotStore | None = _OPEN.get((named, key))
        if store is None or getattr(store, "_closed", False):
            store = open_store(named, key=key)
            _OPEN[named, key] = store
        return store
