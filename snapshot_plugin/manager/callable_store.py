"""A store made of three functions, for programs with their own storage, such as a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from snapshot_plugin.errors import InvalidInput, InvalidSnapshot, StoreUnavailable
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import Capabilities, StoredSnapshot, Trashed
from snapshot_plugin.store.core import StoreCore
from snapshot_plugin.store.log import Tip
from snapshot_plugin.store.memory import MemoryStore

__all__ = ["CallableStore", "Delete", "Load", "Save"]

Save = Callable[[str, dict[str, Any]], object]
Load = Callable[[str], Mapping[str, Any] | None]
Delete = Callable[[str], object]


class CallableStore(MemoryStore):
    """Stores the newest snapshot of each session with three plain functions; older ones only in memory.

    Args:
        save: called with a session's id and its state, a JSON object, after each change.
        load: returns the state last saved under an id, or None. delete: removes the state saved under an id.

    If a function raises, the call raises `StoreUnavailable`; the next save includes the missing changes.

    Raises:
        InvalidInput: a function is asynchronous. Nothing would await it, so nothing would be stored.
    """

    capabilities = Capabilities(durable=True)

    def __init__(self, save: Save, load: Load, delete: Delete) -> None:
        for each in (save, load, delete):
            if inspect.iscoroutinefunction(each):
                raise InvalidInput(
                    f"{each.__name__} is an async function, and a store needs plain ones",
                    hint="give three plain functions; they run in a worker thread and may block",
                )
        super().__init__()
        self.core = _Core(self, save, load, delete)


class _Core(StoreCore):
    """An in-memory store that calls the functions before the first read and after each change."""

    def __init__(self, store: CallableStore, save: Save, load: Load, delete: Delete) -> None:
        super().__init__(store)
        self._functions = save, load, delete
        self._known: set[str] = set()
        self._unsaved: set[str] = set()

    def _fetch(self, session_id: str) -> None:
        if session_id in self._known:
            return
        found = _called(session_id, self._functions[1], session_id)
        if found is not None:
            if not isinstance(found, Mapping):
                raise InvalidSnapshot(
                    f"what was loaded for session {session_id} is a {type(found).__name__}, not a JSON object",
                    session_id=session_id, hint="return what save was given, or None",
                )  # fmt: skip
            super().save(load_document(dict(found)), "load", (), 0)
        self._known.add(session_id)

    def save(self, snapshot: SessionSnapshot, trigger: str, *rest: Any, **options: Any) -> SnapshotRef:
        """See `StoreCore`."""
        session_id = snapshot.session_id
        self._fetch(session_id)
        ref = super().save(snapshot, trigger, *rest, **options)
        if ref.written or session_id in self._unsaved:
            self._unsaved.add(session_id)
            state = {"version": snapshot.version, **thaw(snapshot.raw())}
            _called(session_id, self._functions[0], session_id, state)
            self._unsaved.discard(session_id)
        return ref

    def read(self, session_id: str, at: int | None, strict: bool) -> StoredSnapshot:
        """See `StoreCore`."""
        self._fetch(session_id)
        return super().read(session_id, at, strict)

    def tip(self, session_id: str) -> Tip | None:
        """See `StoreCore`."""
        self._fetch(session_id)
        return super().tip(session_id)

    def section(self, session_id: str, path: tuple[str, ...], at: int | None) -> Any:
        """See `StoreCore`."""
        self._fetch(session_id)
        return super().section(session_id, path, at)

    def history(self, session_id: str, labels: Mapping[str, str]) -> Any:
        """See `StoreCore`."""
        self._fetch(session_id)
        found: Any = super().history(session_id, labels)
        return found

    def delete(self, session_id: str, purge: bool) -> Trashed:
        """See `StoreCore`."""
        self._fetch(session_id)
        trashed = super().delete(session_id, purge)
        _called(session_id, self._functions[2], session_id)
        return trashed


def _called(session_id: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        raise StoreUnavailable(
            f"{getattr(function, '__name__', 'a function')} failed for session {session_id}: {error}",
            session_id=session_id,
        ) from error
