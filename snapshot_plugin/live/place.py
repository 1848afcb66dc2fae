"""Leases and spools in a store's own directories: the `LivePlace` of every store on a local disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.errors import Fenced, InvalidInput, SnapshotCorrupted, SnapshotError
from snapshot_plugin.live.aside import set_aside
from snapshot_plugin.live.lease import Lease, Owner, ended_without_stop, owner_of
from snapshot_plugin.live.owners import Ownership, sessions_of
from snapshot_plugin.live.ports import Hold, LivePlace, LocalStore, PlacedStore, StoreWithRows
from snapshot_plugin.live.rows import RowPlace
from snapshot_plugin.live.spool import Record, Spool, read_spool, spool_has_records
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

    A store may bring its own as the attribute ``live_place``.
    """
    own = getattr(store, "live_place", None)
    if own is not None:
        place: LivePlace = own
        return place
    if isinstance(store, StoreWithRows):
        return RowPlace(store.live_rows, store.session_keys)
    return FilePlace(store) if isinstance(store, PlacedStore) else None


def required_place(store: SnapshotStore) -> LivePlace:
    """The same, for what cannot do without.

    Raises:
        InvalidInput: the store has no leases: two processes could run one session, and what streams by would be
            lost with this one.
    """
    place = place_of(store)
    if place is None:
        raise _no_leases(store)
    return place


def refuse_shared_without_leases(store: SnapshotStore) -> None:
    """Raise `InvalidInput` for a store that several machines share and that has no leases: a bucket."""
    if store.capabilities.several_machines and place_of(store) is None:
        raise _no_leases(store)


def _no_leases(store: SnapshotStore) -> InvalidInput:
    return InvalidInput(
        f"a live session cannot be kept in this {type(store).__name__}: it has no leases, so two machines could "
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

    def __init__(self, store: PlacedStore) -> None:
        self._store = store

    def take(self, session_id: str, owner: Owner) -> Hold:
        """See `LivePlace`."""
        directory = self._store.session_dir(session_id)
        lease = Lease.acquire(directory, owner)
        try:
            spool = self._open_spool(session_id, directory)
        except BaseException:
            lease.hand_back()
            raise
        return FileHold(session_id, directory, lease, spool, self)

    def _open_spool(self, session_id: str, directory: Path, after: int = 0) -> Spool:
        return Spool.open(directory, session_id=session_id, keys=self.keys_of(session_id), after=after)

    def keys_of(self, session_id: str) -> SessionKeys | None:
        """The keys that the session's spool is sealed with; None in a plain store."""
        return self._store.session_keys(session_id)

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
        except SnapshotError:  # its lease cannot be looked at: it may be live
            return Owner(pid=0, host="unknown", since=datetime.now(UTC))

    def abandoned(self) -> Sequence[str]:
        """See `LivePlace`."""
        return [session_id for session_id in self._sessions() if self.is_abandoned(session_id)]

    def is_abandoned(self, session_id: str) -> bool:
        """See `LivePlace`. The spool is not read here, only its size is looked at."""
        directory = self._existing(session_id)
        if directory is None or owner_of(directory) is not None:
            return False
        return ended_without_stop(directory) is not None or spool_has_records(directory, session_id)

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
        return read_spool(directory, session_id=session_id, keys=self.keys_of(session_id)).records

    def _existing(self, session_id: str) -> Path | None:
        if isinstance(self._store, LocalStore):
            directory = self._store.path / "sessions" / dirname_of(session_id)
            return directory if directory.is_dir() else None
        return self._store.session_dir(session_id)

    def _sessions(self) -> Sequence[str]:
        return sessions_of(self._store.path) if isinstance(self._store, LocalStore) else ()


class FileHold:
    """A `Hold` of files."""

    def __init__(self, session_id: str, directory: Path, lease: Lease, spool: Spool, place: FilePlace) -> None:
        self.lease = lease
        self.epoch = lease.epoch
        self.previous = lease.previous
        self.damage = f"{spool.damage}; kept as {spool.set_aside}" if spool.damage else None
        self._session_id = session_id
        self._directory = directory
        self._use(spool)
        self._place = place
        self._found, spool.found = spool.found, ()
        self._found_base = self._found[0].n - 1 if self._found else spool.last

    @property
    def is_fenced(self) -> bool:
        """See `Hold`. The kernel keeps others from the lease, but not from moving the directory away."""
        return not self.lease.is_in_place

    def watch(self, overtaken: Callable[[], None]) -> None:
        """See `Hold`: the kernel holds the lock, so it cannot be taken over."""

    def _use(self, spool: Spool) -> None:
        self._spool = spool
        self.append = spool.append_all
        """See `Hold`. A deleted session is noticed by `flush`, not here: an append is one write, nothing else."""

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
        records = [record for record in self._found if record.n > after]
        if records and self._found_base > after:
            raise SnapshotCorrupted(
                f"spool records {after + 1} to {self._found_base} are missing; those after them were not applied",
                session_id=self._session_id,
            )
        return records

    def truncate(self, upto: int) -> None:
        """See `Hold`."""
        self._spool.truncate(upto)
        self._found = ()
        with contextlib.suppress(SnapshotError):  # the snapshot saw whether the key was rotated: the spool follows
            self._spool.rekey(self._place.keys_of(self._session_id))

    def set_aside(self, after: int) -> str | None:
        """See `Hold`."""
        after = max(after, self._spool.last)
        self._spool.close()
        aside = set_aside(self._directory)
        self._use(self._place._open_spool(self._session_id, self._directory, after))  # noqa: SLF001 — of this module
        self._found = ()
        return str(aside) if aside else None

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
