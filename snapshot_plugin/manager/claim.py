"""What makes a session this process's own: the lease nobody else gets, and the spool only its owner writes.

A store without a local place has neither; the session is then saved all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from snapshot_plugin.errors import InvalidInput, SnapshotError
from snapshot_plugin.manager.lease import Lease, Owner
from snapshot_plugin.manager.ports import LocalPlace
from snapshot_plugin.manager.recovery import upto_of, with_upto
from snapshot_plugin.manager.spool import Spool
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.hop import in_thread

__all__ = ["Claim", "Claims", "Mark"]


class Mark(NamedTuple):
    """How far a session's records had come at one moment. A snapshot taken then contains all of them."""

    upto: int
    """The number of the newest record."""
    refused: int
    """How many records the spool did not take."""


class Claim:
    """The lease and the spool of one session, where the store has a place for them."""

    def __init__(
        self,
        session_id: str,
        place: LocalPlace | None,
        *,
        owner: Callable[[], Owner],
        recover: Callable[[str, Lease], Awaitable[None]],
        spool_failed: Callable[[str, SnapshotError], None],
    ) -> None:
        self.session_id = session_id
        self.holders = 0
        self.starting = anyio.Lock()
        """For those who start the session: one at a time."""
        self.upto = 0
        """The number of the newest record that a snapshot contains."""
        self._place = place
        self._owner = owner
        self._recover = recover
        self._spool_failed = spool_failed
        self._lease: Lease | None = None
        self._spool: Spool | None = None
        self._refused = 0
        self._made_good = 0
        """How many of the refused records a snapshot contains by now. All of them: the spool has no gap."""
        self._flushed = 0
        self._flushing = anyio.Lock()
        self._securing = anyio.Lock()

    @property
    def is_held(self) -> bool:
        """Whether this process holds the session's lease."""
        return self._lease is not None

    @property
    def mark(self) -> Mark:
        """How far the records have come."""
        return Mark(self._spool.last if self._spool is not None else self.upto, self._refused)

    async def secure(self) -> None:
        """Take the lease, recover what an earlier owner left in the spool, and open the spool. Once is enough.

        Raises:
            SessionLocked: another process owns the session.
            StoreUnavailable: the disk refused; may be tried again.
        """
        if self._place is None or self._spool is not None:
            return
        async with self._securing:
            if self._spool is None:
                await self._secure(self._place)

    async def _secure(self, place: LocalPlace) -> None:
        lease = await in_thread(self._take_lease, place, lost=Lease.release)
        try:
            # Even if the spool is empty: after a power cut it may have forgotten which numbers the head claims.
            await self._recover(self.session_id, lease)
            spool = await in_thread(self._open_spool, place, lost=Spool.close)
        except BaseException:
            lease.release()
            raise
        self._lease, self._spool, self.upto = lease, spool, spool.last
        self._flushed = spool.last

    def _directory(self, place: LocalPlace) -> Path:
        return place.session_dir(self.session_id)

    def _take_lease(self, place: LocalPlace) -> Lease:
        return Lease.acquire(self._directory(place), self._owner())

    def _open_spool(self, place: LocalPlace) -> Spool:
        keys = place.session_keys(self.session_id)
        return Spool.open(self._directory(place), session_id=self.session_id, keys=keys)

    def record(self, record: dict[str, Any]) -> bool:
        """Spool *record*. True: it survives ``kill -9``. False: only the next snapshot will hold it.

        After a failure nothing is spooled until a snapshot has succeeded: a spool with a gap would be recovered
        as a conversation that never was. What is not JSON raises `InvalidInput`.
        """
        if self._spool is None:
            return False
        if self._refused == self._made_good:
            try:
                self._spool.append(record)
            except InvalidInput:
                raise
            except SnapshotError as error:
                self._spool_failed(self.session_id, error)
            else:
                return True
        self._refused += 1
        return False

    async def flush(self) -> None:
        """Make what was recorded safe from a power cut; on return it is. A disk that refuses is reported."""
        async with self._flushing:  # who finds a flush under way waits for it: it may be of what he recorded
            spool = self._spool
            if spool is None or spool.last == self._flushed:
                return
            self._flushed = spool.last
            try:
                await in_thread(spool.flush)
            except SnapshotError as error:
                if self._spool is spool:  # one that was let go meanwhile was flushed then
                    self._spool_failed(self.session_id, error)

    def stamped(self, snapshot: SessionSnapshot, upto: int) -> SessionSnapshot:
        """*snapshot* with a note of the records it contains; as it is where nothing was ever recorded."""
        return snapshot if upto_of(snapshot) == upto else with_upto(snapshot, upto)

    async def saved(self, taken: Mark) -> None:
        """Drop the records that a durable snapshot contains; *taken* is the mark when it was taken.

        A failure costs nothing: recovery knows the number too. What was refused since is in no snapshot yet.
        """
        self.upto = taken.upto
        if self._spool is None:
            return
        try:
            await in_thread(self._spool.truncate, taken.upto)
        except SnapshotError as error:
            self._spool_failed(self.session_id, error)
        else:
            self._made_good = taken.refused

    async def release(self) -> None:
        """Let go of the session: properly stopped. `secure` takes it again."""
        async with self._securing:
            lease, spool = self._lease, self._spool
            self._lease = self._spool = None
            if lease is not None and spool is not None:
                await in_thread(_release, lease, spool)


def _release(lease: Lease, spool: Spool) -> None:
    with contextlib.suppress(SnapshotError):
        spool.flush()
    spool.close()
    lease.release()


class Claims:
    """The claims of one manager: one per session, kept for as long as somebody here needs it."""

    def __init__(self, make: Callable[[str], Claim]) -> None:
        self._make = make
        self._held: dict[str, Claim] = {}
        self._recorded = anyio.Event()

    def hold(self, session_id: str) -> Claim:
        """The session's claim. It does nothing until `Claim.secure`, and must be given back with `drop`."""
        claim = self._held.get(session_id) or self._make(session_id)
        self._held[session_id] = claim
        claim.holders += 1
        return claim

    async def drop(self, claim: Claim) -> None:
        """Give a claim back. The last holder's return frees the session for others, even when cancelled."""
        claim.holders -= 1
        if claim.holders:
            return
        with anyio.CancelScope(shield=True):
            await claim.release()
        if not claim.holders:
            self._held.pop(claim.session_id, None)

    def record(self, session_id: str, record: dict[str, Any]) -> bool:
        """Spool *record* of a session that is claimed here; see `Claim.record`."""
        claim = self._held.get(session_id)
        if claim is None or not claim.record(record):
            return False
        self._recorded.set()
        return True

    async def keep_flushed(self, interval: float) -> None:
        """Make what is recorded safe from a power cut within *interval* seconds; sleep while nothing is."""
        while True:
            await self._recorded.wait()
            await anyio.sleep(interval)
            self._recorded = anyio.Event()
            for claim in tuple(self._held.values()):
                await claim.flush()
