"""A store made of three functions, for programs with their own storage, such as a table."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from snapshot_plugin.errors import InvalidInput, InvalidSnapshot, StoreUnavailable
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import CheckReport, Trashed
from snapshot_plugin.store.core import StoreCore
from snapshot_plugin.store.memory import MemoryStore
from snapshot_plugin.store.transfer import Copied
from snapshot_plugin.store.trash import discard

__all__ = ["CallableStore", "Delete", "Load", "Save"]

T = TypeVar("T")
Save = Callable[[str, dict[str, Any]], object]
Load = Callable[[str], Mapping[str, Any] | None]
Delete = Callable[[str], object]


class CallableStore(MemoryStore):
    """Stores the newest snapshot of each session with three plain functions; older ones only in memory.

    Args:
        save: called with a session's id and its state, a JSON object, after each change.
        load: returns the state last saved under an id, or None. delete: removes the state saved under an id.

    Processes may share the place: each call looks first what the others stored. Two saves at the same moment cannot
    be told apart with three functions; a save on top of an older state is a `Conflict`.

    If a function raises, the call raises `StoreUnavailable`; the next save includes the missing changes.

    Raises:
        InvalidInput: a function is asynchronous. Nothing would await it, so nothing would be stored.
    """

    def __init__(self, save: Save, load: Load, delete: Delete) -> None:
        for each in (save, load, delete):
            if inspect.iscoroutinefunction(each):
                raise InvalidInput(
                    f"{each.__name__} is an async function, and a store needs plain ones",
                    hint="give three plain functions; they run in a worker thread and may block",
                )
        super().__init__()
        self._load = load
        self.core: _Core = _Core(self, save, delete)

    def prepared(self, work: Callable[[], T], session_id: str | None = None) -> T:
        """Every call of the store passes here; it looks first what other processes did to the session."""
        if session_id is not None:
            self.look(session_id)
        return super().prepared(work, session_id)

    def look(self, session_id: str) -> None:
        """Take over what another process saved or deleted since this object last looked."""
        found = _called(session_id, self._load, session_id)
        if found is not None and not isinstance(found, Mapping):
            raise InvalidSnapshot(
                f"what was loaded for session {session_id} is a {type(found).__name__}, not a JSON object",
                session_id=session_id, hint="return what save was given, or None",
            )  # fmt: skip
        with self.frames.exclusively(session_id):
            self.core.take_over(session_id, found)


class _Core(StoreCore):
    """Calls the functions after each change of a session's newest snapshot."""

    def __init__(self, store: CallableStore, save: Save, delete: Delete) -> None:
        super().__init__(store)
        self._put, self._remove, self._look = save, delete, store.look
        self._stored: dict[str, bytes] = {}
        """The digest of each state that is stored, as far as this object knows."""
        self._unsaved: dict[str, bytes] = {}
        """The digest of each state whose save failed; it may be stored all the same."""

    def take_over(self, session_id: str, found: Mapping[str, Any] | None) -> None:
        """Make *found* the newest snapshot, unless it is known: then a save that does not build on it conflicts."""
        state = _digest(found)
        if state in (self._stored.get(session_id, _digest(None)), self._unsaved.get(session_id)):
            return
        if found is not None:
            tip = self._log.tip(session_id)
            base = tip.seq if tip else 0
            is_new = super().save(load_document(dict(found)), trigger="load", base=base).written
        elif is_new := bool(self._log.segments(session_id)):
            discard(self._log, session_id, token=new_id(), now=self._store.clock())
        if is_new:
            self._writers.forget(session_id)
        self._stored[session_id] = state
        self._unsaved.pop(session_id, None)

    def save(self, snapshot: SessionSnapshot, **options: Any) -> SnapshotRef:
        """See `StoreCore`."""
        ref = super().save(snapshot, **options)
        if ref.written or snapshot.session_id in self._unsaved:
            self._store_state(snapshot)
        return ref

    def _store_state(self, snapshot: SessionSnapshot) -> None:
        session_id = snapshot.session_id
        state = {"version": snapshot.version, **thaw(snapshot.raw())}
        self._unsaved[session_id] = _digest(state)
        _called(session_id, self._put, session_id, state)
        self._stored[session_id] = self._unsaved.pop(session_id)

    def delete(self, session_id: str, *, purge: bool = False) -> Trashed:
        """See `StoreCore`."""
        self._must_exist(session_id)
        self._store.guard(session_id)
        _called(session_id, self._remove, session_id)  # first: if it fails, the session stays
        self._stored.pop(session_id, None)
        return super().delete(session_id, purge=purge)

    def undelete(self, token: str, *, session_id: str | None = None) -> str:
        """See `StoreCore`."""
        for entry in [each for each in self.trash() if each.token == token]:
            self._look(session_id or entry.session_id)
        name = super().undelete(token, session_id=session_id)
        self._store_state(self.load(name))
        return name

    def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """See `StoreCore`."""
        for entry in self._log.sessions():
            self._look(entry.session_id)
        return super().list(labels=labels)

    def newest(self, session_id: str) -> SnapshotMeta | None:
        """See `StoreCore`."""
        self._look(session_id)
        return super().newest(session_id)

    def check(self, session_id: str | None = None) -> CheckReport:
        """See `StoreCore`."""
        if session_id is not None:
            self._look(session_id)
        return super().check(session_id)

    def put_in(self, session_id: str, copies: Sequence[Copied], *, instead_of: Sequence[Copied] = ()) -> None:
        """See `StoreCore`."""
        super().put_in(session_id, copies, instead_of=instead_of)
        self._store_state(self.load(session_id))


def _digest(state: Mapping[str, Any] | None) -> bytes:
    return hashlib.sha256(json.dumps(state, sort_keys=True, default=dict).encode()).digest()


def _called(session_id: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        raise StoreUnavailable(
            f"{getattr(function, '__name__', 'a function')} failed for session {session_id}: {error}",
            session_id=session_id,
        ) from error
