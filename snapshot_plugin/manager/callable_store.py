"""A store made of three functions, for programs with their own storage, such as a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from snapshot_plugin.errors import InvalidInput, InvalidSnapshot, StoreUnavailable
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import Capabilities, Trashed
from snapshot_plugin.store.core import StoreCore
from snapshot_plugin.store.log import SessionEntry
from snapshot_plugin.store.memory import MemoryLog, MemoryStore
from snapshot_plugin.store.transfer import Copied

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
        super().__init__(_Log(load, self._begin))
        self.core = _Core(self, save, delete)

    def _begin(self, session_id: str, found: object) -> None:
        if found is None:
            return
        if not isinstance(found, Mapping):
            raise InvalidSnapshot(
                f"what was loaded for session {session_id} is a {type(found).__name__}, not a JSON object",
                session_id=session_id, hint="return what save was given, or None",
            )  # fmt: skip
        StoreCore.save(self.core, load_document(dict(found)), "load", (), 0)


class _Log(MemoryLog):
    """A log in memory that loads a session when it is first looked at."""

    def __init__(self, load: Load, begin: Callable[[str, object], None]) -> None:
        super().__init__()
        self._load, self._begin = load, begin
        self._known: set[str] = set()

    def _stored(self, session_id: str) -> tuple[tuple[bytes, ...] | None, int]:
        if session_id not in self._known:
            found = _called(session_id, self._load, session_id)
            with self._lock:
                if session_id not in self._known:
                    self._known.add(session_id)  # before: what begins it looks here, too
                    try:
                        self._begin(session_id, found)
                    except BaseException:
                        self._known.discard(session_id)
                        raise
        return super()._stored(session_id)

    def sessions(self, only: str | None = None) -> list[SessionEntry]:
        """See `FrameLog`. The three functions cannot list: only sessions that were used are found."""
        if only is not None:
            self._stored(only)
        return super().sessions(only)


class _Core(StoreCore):
    """Calls the functions after each change of a session's newest snapshot."""

    def __init__(self, store: CallableStore, save: Save, delete: Delete) -> None:
        super().__init__(store)
        self._put, self._remove = save, delete
        self._unsaved: set[str] = set()

    def save(self, snapshot: SessionSnapshot, trigger: str, *rest: Any, **options: Any) -> SnapshotRef:
        """See `StoreCore`."""
        self._log.tip(snapshot.session_id)  # loads it first, so that the save builds on it
        ref = super().save(snapshot, trigger, *rest, **options)
        if ref.written or snapshot.session_id in self._unsaved:
            self._store_state(snapshot)
        return ref

    def _store_state(self, snapshot: SessionSnapshot) -> None:
        session_id = snapshot.session_id
        self._unsaved.add(session_id)
        state = {"version": snapshot.version, **thaw(snapshot.raw())}
        _called(session_id, self._put, session_id, state)
        self._unsaved.discard(session_id)

    def delete(self, session_id: str, purge: bool) -> Trashed:
        """See `StoreCore`."""
        self._must_exist(session_id)
        self._store.guard(session_id)
        _called(session_id, self._remove, session_id)  # first: if it fails, the session stays
        return super().delete(session_id, purge)

    def undelete(self, token: str, session_id: str | None) -> str:
        """See `StoreCore`."""
        name = super().undelete(token, session_id)
        self._store_state(self.load(name, None, strict=False))
        return name

    def put_in(self, session_id: str, copies: Sequence[Copied], instead_of: Sequence[Copied]) -> None:
        """See `StoreCore`."""
        super().put_in(session_id, copies, instead_of)
        self._store_state(self.load(session_id, None, strict=False))


def _called(session_id: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        raise StoreUnavailable(
            f"{getattr(function, '__name__', 'a function')} failed for session {session_id}: {error}",
            session_id=session_id,
        ) from error
