"""Leases and spools in a store's own directories: the `LivePlace` of every store on a local disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.errors import Fenced, InvalidInput, SnapshotError
from snapshot_plugin.live.lease import Lease, Owner, lease_of, owner_of
from snapshot_plugin.live.owners import Ownership, sessions_of
from snapshot_plugin.live.ports import Hold, LivePlace, LocalPlace, LocalStore, Record, StoreWithRows
from snapshot_plugin.live.rows import RowPlace
from snapshot_plugin.live.spool import Spool
from snapshot_plugin.live.spool_format import read_spool, spool_has_records, unsaved
from snapshot_plugin.model.ids import dirname_of
from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "FileHold",
    "FilePlace",
    "ownerships_elsewhere",
    "place_of",
    "refuse_shared_without_leases",
    "required_place",
]


def place_of(store: SnapshotStore) -> LivePlace | None:
    """Where *store* keeps leases and spools; None if it has no such place and can only keep snapshots.

    A store may provide its own place in the attribute ``live_place``.
    """
    own = getattr(store, "live_place", None)
    if own is not None:
        place: LivePlace = own
        return place
    if isinstance(store, StoreWithRows):
        return RowPlace(store.live_rows, store.session_keys)
    return FilePlace(store) if isinstance(store, LocalPlace) else None


def required_place(store: SnapshotStore) -> LivePlace:
    """As `place_of`, for callers that need leases and spools.

    Raises:
        InvalidInput: the store has no leases: two processes could run one session, and streamed output would be
            lost if this one dies.
    """
    place = place_of(store)
    if place is None:
        raise _no_leases()
    return place


def refuse_shared_without_leases(store: SnapshotStore) -> None:
    """Raise `InvalidInput` if several machines share the store and it has no leases, as in a bucket."""
    if store.capabilities.several_machines and place_of(store) is None:
        raise _no_leases()


def _no_leases() -> InvalidInput:
    return InvalidInput(
        "a live session cannot be kept here: this store has no leases (a bucket has none), so two machines could "
        "run the session at once",
        hint="record to a directory on disk and copy it to the bucket with asnap archive, "
        "or use PostgreSQL: --store postgresql://host/database",
    )


def ownerships_elsewhere(store: SnapshotStore) -> dict[str, Ownership]:
    """The owners of sessions in a store that is not on a local disk. Buckets have none."""
    place = place_of(store) if store.capabilities.live else None
    return place.ownerships() if isinstance(place, RowPlace) else {}


class FilePlace:
    """Leases and spools as files in the session's directory: ``.lease``, ``.lease.gate``, ``live``."""

    def __init__(self, store: LocalPlace) -> None:
        self._store = store

    def take(self, session_id: str, owner: Owner) -> Hold:
        """See `LivePlace`."""
        directory = self._store.session_dir(session_id)
        lease = Lease.acquire(directory, owner)
        try:
            spool = Spool.open(directory, session_id=session_id, keys=self._store.session_keys(session_id))
        except BaseException:
            lease.hand_back()
            raise
        return FileHold(session_id, lease, spool, self._store.session_keys)

    def lease(self, session_id: str, owner: Owner) -> Lease | None:
        """Take the lease without opening the spool; None if there is no such session."""
        directory = self._existing(session_id)
        return Lease.acquire(directory, owner) if directory else None

    def owner(self, session_id: str) -> Owner | None:
        """See `LivePlace`."""
        directory = self._existing(session_id)
        return owner_of(directory) if directory else None

    def owners(self) -> Mapping[str, Owner]:
        """See `LivePlace`."""
        found = {session_id: self._owner_as_far_as_known(session_id) for session_id in self._sessions()}
        return {session_id: owner for session_id, owner in found.items() if owner is not None}

    def _owner_as_far_as_known(self, session_id: str) -> Owner | None:
        try:
            return self.owner(session_id)
        except SnapshotError:  # its lease cannot be read, so it may be live
            return Owner(pid=0, host="unknown", since=datetime.now(UTC))

    def abandoned(self) -> Sequence[str]:
        """See `LivePlace`."""
        return [session_id for session_id in self._sessions() if self.is_abandoned(session_id)]

    def is_abandoned(self, session_id: str) -> bool:
        """See `LivePlace`. Checks only the size of the spool."""
        directory = self._existing(session_id)
        if directory is None:
            return False
        owner, died = lease_of(directory)
        return owner is None and (died is not None or spool_has_records(directory, session_id))

    def spool_mark(self, session_id: str) -> tuple[int, ...]:
        """See `LivePlace`."""
        directory = self._existing(session_id)
        try:
            about = (directory / "live").stat() if directory else None
        except OSError:
            return ()
        return (about.st_size, about.st_mtime_ns) if about else ()

    def records(self, session_id: str) -> Sequence[Record]:
        """See `LivePlace`."""
        directory = self._existing(session_id)
        if directory is None:
            return ()
        keys = self._store.session_keys(session_id)
        return read_spool(directory, session_id=session_id, keys=keys).records

    def _existing(self, session_id: str) -> Path | None:
        if isinstance(self._store, LocalStore):
            directory = self._store.path / "sessions" / dirname_of(session_id)
            return directory if directory.is_dir() else None
        return self._store.session_dir(session_id)

    def _sessions(self) -> Sequence[str]:
        return sessions_of(self._store.path) if isinstance(self._store, LocalStore) else ()


class FileHold:
    """A `Hold` of files."""

    def __init__(
        self, session_id: str, lease: Lease, spool: Spool, keys_of: Callable[[str], SessionKeys | None]
    ) -> None:
        self.lease = lease
        self.epoch = lease.epoch
        self.previous = lease.previous
        self.damage = f"{spool.damage}; kept as {spool.set_aside}" if spool.damage else None
        self.append = spool.append_all
        """See `Hold`. An append is a single write; `flush` detects that the session was deleted."""
        self._session_id = session_id
        self._spool = spool
        self._keys_of = keys_of
        self._found, spool.found = spool.found, ()

    @property
    def is_fenced(self) -> bool:
        """See `Hold`. The kernel lock protects the lease, but another process can still move the directory."""
        return not self.lease.is_in_place

    def watch(self, overtaken: Callable[[], None]) -> None:
        """See `Hold`. Never calls *overtaken*: a kernel lock cannot be taken over."""

    @property
    def last(self) -> int:
        """See `Hold`."""
        return self._spool.last

    def flush(self) -> None:
        """See `Hold`."""
        self._spool.flush()
        if self.is_fenced:
            raise Fenced(
                f"session {self._session_id!r} was deleted or moved while it was live here",
                session_id=self._session_id,
            )

    def unsaved(self, after: int) -> Sequence[Record]:
        """See `Hold`."""
        return unsaved(self._found, after, self._session_id)

    def truncate(self, upto: int) -> None:
        """See `Hold`."""
        self._spool.truncate(upto)
        self._found = ()
        with contextlib.suppress(SnapshotError):  # the key may have been rotated since
            self._spool.rekey(self._keys_of(self._session_id))

    def set_aside(self, after: int) -> str | None:
        """See `Hold`."""
        self._found = ()
        return str(self._spool.keep_aside(after))

    def release(self) -> None:
        """See `Hold`."""
        self._close()
        self.lease.release()

    def hand_back(self) -> None:
        """See `Hold`."""
        self._close()
        self.lease.hand_back()

    def _close(self) -> None:
        with contextlib.suppress(SnapshotError):
            self._spool.flush()
        self._spool.close()
