"""The lease and spool of one live session: acquired when the disk permits, and never with a gap.

A spool with a gap would be recovered as a conversation that never happened. So after a failed write nothing more is
spooled until a snapshot covers the missing records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any, NamedTuple

from snapshot_plugin.errors import Fenced, SnapshotError
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.ports import Hold, LivePlace
from snapshot_plugin.live.recovery import Recovered
from snapshot_plugin.live.steps import Blocking, Steps

__all__ = ["LeasedSpool", "Mark"]


class Mark(NamedTuple):
    """How far a session's records had come at one moment. A snapshot taken then contains all of them."""

    upto: int
    """The number of the newest record."""
    refused: int
    """How many records the spool did not take."""


class LeasedSpool:
    """The lease and spool of one session, or neither yet. The caller serializes `append` with `mark` and `gap`.

    Args:
        session_id: the session.
        place: where leases and spools are; None: this store has no such place.
        owner: what the lease says about this process.
        recover: turns what a dead owner left in the hold into a snapshot.
    """

    def __init__(
        self,
        session_id: str,
        place: LivePlace | None,
        owner: Callable[[], Owner],
        recover: Callable[[Hold], Steps[Recovered | None]],
    ) -> None:
        self.place = place
        self.overtaken: Callable[[], None] = lambda: None
        """Called once, from any thread, when another owner is found to have taken the session over."""
        self._session_id = session_id
        self._owner = owner
        self._recover = recover
        self._hold: Hold | None = None
        self._fenced: Fenced | None = None
        self._swapping = threading.Lock()
        self._upto = 0
        self._refused = self._made_good = 0

    @property
    def is_held(self) -> bool:
        """Whether this process has the session's lease."""
        return self._hold is not None

    @property
    def is_whole(self) -> bool:
        """Whether the spool is there and has no gap."""
        return self._hold is not None and self._refused == self._made_good

    @property
    def epoch(self) -> int:
        """The lease's fencing number; 0 without a lease."""
        return self._hold.epoch if self._hold else 0

    @property
    def mark(self) -> Mark:
        """How far the records have come."""
        return Mark(self._hold.last if self._hold else self._upto, self._refused)

    def taking(self) -> Steps[Recovered | None]:
        """Take the lease and recover what a dead owner left. Does nothing when it is held, or has no place.

        Raises:
            SessionLocked: another process owns the session.
            Fenced: another process took it over from this one.
            StoreUnavailable: the disk refused; may be tried again.
        """
        if self._fenced is not None:
            raise self._fenced
        if self.place is None or self._hold is not None:
            return None
        hold: Hold = yield Blocking(self.place.take, (self._session_id, self._owner()), methodcaller("hand_back"))
        try:
            recovered = yield from self._recover(hold)
        except BaseException:
            hold.hand_back()
            raise
        self._hold, self._upto = hold, hold.last
        hold.watch(self.overtaken)
        return recovered

    def append(self, batch: Sequence[Mapping[str, Any]]) -> bool:
        """Spool *batch* in one write; whether it is spooled. If not, `gap` has to be called.

        Raises:
            SnapshotError: the spool refused it.
        """
        if self._hold is None or self._refused != self._made_good:
            return False
        self._hold.append(batch)
        return True

    def gap(self, records: int = 1) -> None:
        """So many records are not spooled: spool nothing until a snapshot holds them."""
        self._refused += records

    def flushing(self) -> Steps[bool]:
        """Make what was spooled survive a power cut; False without a spool.

        Raises:
            SnapshotError: the disk refused. `Fenced`: what was spooled last is in a file that is gone.
        """
        hold = self._hold
        if hold is None:
            return False
        try:
            yield Blocking(hold.flush)
        except SnapshotError:
            if self._hold is hold:
                raise
        return True  # or it was given up meanwhile, and flushed then

    def dropping(self, taken: Mark) -> Steps[None]:
        """Drop the records that a stored snapshot, taken at *taken*, contains.

        Raises:
            SnapshotError: the spool refused; that costs nothing, because recovery knows the number too.
        """
        self._upto = taken.upto
        if self._hold is not None:
            yield Blocking(self._hold.truncate, (taken.upto,))
        self._made_good = taken.refused

    def taking_again(self) -> Steps[bool]:
        """If the session was deleted, or another owner has it, take a new lease; whether it was so.

        Raises:
            SessionLocked: another process has the session now.
        """
        old = self._hold
        if old is None or self.place is None or not (yield Blocking(lambda: old.is_fenced)):
            return False
        self._hold = yield Blocking(self.place.take, (self._session_id, self._owner()), methodcaller("hand_back"))
        self._hold.watch(self.overtaken)
        self.gap()  # what was appended to the old spool is in no spool now
        yield Blocking(old.release)
        return True

    def fence(self, error: Fenced) -> None:
        """Another process owns the session now: release it unchanged, and refuse to take it again."""
        self._fenced = error
        hold = self._swap_out()
        if hold is not None:
            hold.hand_back()

    def release(self) -> None:
        """Give the lease up as properly stopped. Records stay in the spool."""
        hold = self._swap_out()
        if hold is not None:
            hold.release()

    def _swap_out(self) -> Hold | None:
        with self._swapping:
            hold, self._hold = self._hold, None
        return hold
