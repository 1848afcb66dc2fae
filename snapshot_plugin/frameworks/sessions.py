"""Stores that are opened once, and sessions that several threads and processes change.

Each change of a session is made on top of its newest snapshot.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from snapshot_plugin.errors import Conflict, InvalidInput, InvalidSessionId, SnapshotNotFound
from snapshot_plugin.manager.working_memory import COMPANION
from snapshot_plugin.model.ids import check_session_id, derived_id
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.snapshot import SessionSnapshot, origin_of
from snapshot_plugin.store import check_place, is_url, open_store
from snapshot_plugin.store.log import Tip
from snapshot_plugin.store.recent import Recent
from snapshot_plugin.store.sync import SyncStore
from snapshot_plugin.store.views import StoredLines
from snapshot_plugin.system import forks

if TYPE_CHECKING:
    from snapshot_plugin.codec.sources import KeySource
    from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "COMPANION",
    "WORKFLOW",
    "Key",
    "LabelledSnapshot",
    "OpenSessions",
    "Place",
    "SharedSession",
    "labelled", "name_in",
    "new_session",
    "open_place",
    "session_id_for",
    "shared_session",
]  # fmt: skip

Place: TypeAlias = "str | os.PathLike[str] | SnapshotStore | SyncStore"
"""A directory, a URL, or a store that is open already."""
Key: TypeAlias = "str | KeySource | None"
"""A passphrase or key source; None: the store is not encrypted, or open already."""

_ATTEMPTS = 100
_RECENT = 64
WORKFLOW = "+workflow"
"""The suffix of a workflow's session id, because a conversation may have the same name."""
_RESERVED = re.compile(r"\+(memory|subgraphs|workflow)$|~[0-9a-f]{24}$")
_OPEN: WeakValueDictionary[Any, SnapshotStore] = WeakValueDictionary()
_LOCK = forks.lock()


def open_place(place: Place, key: Key = None) -> SyncStore:
    """The store at *place*, opened once per process for each place and key.

    Raises:
        InvalidInput: *place* is an open store, and a key is given as well; or it is no place.
    """
    if isinstance(place, str | os.PathLike):
        return _opened(place, key).sync
    if key is not None:
        raise InvalidInput("a key cannot be given for a store that is open", hint="open the store with the key")
    if not isinstance(place, SyncStore) and not hasattr(place, "sync"):
        check_place(place)
    return place if isinstance(place, SyncStore) else place.sync


def _opened(place: str | os.PathLike[str], key: Key) -> SnapshotStore:
    check_place(place)
    named = place if isinstance(place, str) and is_url(place) else os.path.realpath(os.fspath(place))
    if named in ("memory:", "memory://"):
        return open_store(named, key=key)
    with _LOCK:
        try:
            store = _OPEN.get((named, key))
        except TypeError:  # a key source that has no hash cannot be found again
            return open_store(named, key=key)
        if store is None or getattr(store, "_closed", False):
            store = open_store(named, key=key)
            _OPEN[named, key] = store
        return store


class LabelledSnapshot(NamedTuple):
    """A new snapshot of a session, and the labels it is saved with."""

    snapshot: SessionSnapshot
    labels: Mapping[str, str]


class SharedSession:
    """One session of a store, which several threads and processes may change at once.

    `OpenSessions.session` returns it: all users in a process share one object and its lock.
    """

    def __init__(self, store: SyncStore, session_id: str) -> None:
        self.store, self.session_id = store, session_id
        self.lock = forks.rlock()
        self.seq = 0
        """The number of the snapshot that `current` returned last; 0 if there was none."""
        self._snapshot: SessionSnapshot | None = None
        self._tip: Tip | None = None
        self._was_read = False
        self.read_anew = 0
        """How often the session was read, or had to be: the number of a snapshot alone may be used again."""

    def current(self) -> SessionSnapshot | None:
        """The newest snapshot; None if the session does not exist. Read again only if another writer changed it."""
        with self.lock:
            tip = self.store.tip(self.session_id) if self._snapshot else None
            if tip is None or tip != self._tip:
                self._read()
            return self._snapshot

    def first_lines(self) -> StoredLines | None:
        """The newest snapshot as stored lines, which is cheap for a process that reads only once.

        None if the session does not exist or was read before; `current` then has the messages, or keeps them.
        """
        with self.lock:
            if self._was_read:
                return None
            self._was_read = True
            with contextlib.suppress(SnapshotNotFound):
                return self.store.lines(self.session_id)
        return None

    @staticmethod
    def now() -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)

    @property
    def last(self) -> SessionSnapshot | None:
        """The snapshot that this process saved or read last; does not access the store."""
        return self._snapshot

    def _read(self) -> None:
        self._forget()
        self._was_read = True
        with contextlib.suppress(SnapshotNotFound):
            found = self.store.read(self.session_id)
            origin = origin_of(found.snapshot)
            self._snapshot, self.seq = found.snapshot, found.ref.seq
            self._tip = Tip(origin.seq, origin.id) if origin else None

    def _forget(self) -> None:
        self._snapshot, self._tip, self.seq = None, None, 0
        self.read_anew += 1

    def change(self, make: Callable[[SessionSnapshot | None], SessionSnapshot | LabelledSnapshot | None]) -> int:
        """Save what *make* returns for the newest snapshot; durable on return. Returns its number.

        *make* gets a snapshot, or None if the session does not exist, and returns the next one.
        It is called first with what this process knows, and again if another writer has changed that, because the
        store refuses a save on an old base: so it may be called several times, and should do nothing else. If it
        returns None for the newest snapshot, nothing is saved; if it raises for the newest, so does this.

        Raises:
            Conflict: other writers were faster 100 times in a row.
        """
        with self.lock:
            is_newest = self._snapshot is None
            for _ in range(_ATTEMPTS):
                change = self._made(make, is_newest)
                if change is None and is_newest:
                    return self.seq
                is_newest = True
                if change is None:
                    continue
                try:
                    ref = self.store.save(change.snapshot, base=self.seq, labels=change.labels, trigger="framework")
                except Conflict:
                    self._forget()
                    continue
                saved = self.store.saved_tip(self.session_id)
                self._snapshot, self.seq = change.snapshot, ref.seq
                self._tip = saved if saved and saved.seq == ref.seq else None
                return ref.seq
        raise Conflict(
            f"session {self.session_id} was changed by others each of {_ATTEMPTS} times it was to be saved",
            session_id=self.session_id, hint="try again; one writer per session is faster",
        )  # fmt: skip

    def _made(
        self,
        make: Callable[[SessionSnapshot | None], SessionSnapshot | LabelledSnapshot | None],
        is_newest: bool,
    ) -> LabelledSnapshot | None:
        """Call *make* with the newest snapshot, or with the last known one, where an error counts as None."""
        made: SessionSnapshot | LabelledSnapshot | None = None
        if is_newest:
            made = make(self.current())
        else:
            with contextlib.suppress(Exception):  # the error may concern only the outdated snapshot
                made = make(self._snapshot)
        return LabelledSnapshot(made, {}) if isinstance(made, SessionSnapshot) else made

    def delete(self) -> None:
        """Remove the session for ever, if it exists."""
        with self.lock:
            with contextlib.suppress(SnapshotNotFound):
                self.store.delete(self.session_id, purge=True)
            self._forget()


_SHARED: WeakKeyDictionary[SyncStore, WeakValueDictionary[str, SharedSession]] = WeakKeyDictionary()


def shared_session(store: SyncStore, session_id: str) -> SharedSession:
    """The object that all users of a session of *store* share in this process."""
    with _LOCK:
        sessions = _SHARED.setdefault(store, WeakValueDictionary())
        session = sessions.get(session_id)
        if session is None:
            session = sessions[session_id] = SharedSession(store, session_id)
        return session


class OpenSessions:
    """The sessions of a place. Those used last stay open; others are reopened on demand.

    Args:
        place: a directory, a URL, or an open store.
        key: a passphrase or key source; everything but ids is then encrypted.
    """

    def __init__(self, place: Place, key: Key = None) -> None:
        self.store = open_place(place, key)
        self._recent: Recent[SharedSession] = Recent(_RECENT)

    def session(self, name: str, suffix: str = "") -> SharedSession:
        """The session of what a framework calls *name*, which may be any text: see `session_id_for`."""
        session = shared_session(self.store, session_id_for(name) + suffix)
        self._recent.put(session.session_id, session)
        return session


def labelled(store: SyncStore, framework: str, *names: str) -> Iterator[tuple[SnapshotMeta, Mapping[str, str]]]:
    """Every session of a framework with its labels.

    A session that people saved last (a new title, a fork) has no labels: its section is read instead.
    """
    for meta in store.list():
        if meta.provider_type == framework:
            known = all(name in meta.labels for name in names)
            yield meta, meta.labels if known else store.section(meta.session_id, "plugins", framework) or {}


def name_in(session_id: str, named: str | None) -> str:
    """The framework's name of a session: *named*, unless it is a branch that people made of that session."""
    return named if named is not None and session_id_for(named) == session_id else session_id


def new_session(session_id: str, framework: str, now: datetime | None = None) -> SessionSnapshot:
    """An empty session that belongs to *framework*."""
    moment = now or datetime.now(UTC)
    return SessionSnapshot(
        session_id=session_id, created_at=moment, updated_at=moment, provider_type=framework,
        agent={"name": framework},
    )  # fmt: skip


def session_id_for(name: str) -> str:
    """A session id for an id of a framework: itself if a store can hold it, else its beginning and a digest.

    Two names never get the same id, nor the id of a companion session.

    Raises:
        InvalidSessionId: *name* is not text.
    """
    if not isinstance(name, str):
        raise InvalidSessionId(f"the session id {name!r} is not text", hint="pass str(id)")
    with contextlib.suppress(InvalidSessionId):
        if not _RESERVED.search(name):
            check_session_id(name)
            check_session_id(name + max(COMPANION, WORKFLOW, key=len))
            return name
    return derived_id(name)
