"""Results of statements about live sessions. Importing this does not load the database driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from snapshot_plugin.errors import StoreUnavailable

__all__ = ["Held", "LostConnection", "Taken"]


class LostConnection(StoreUnavailable):
    """The connection broke during a statement: the server may have carried it out, or not."""

    default_hint = "check the network and the server, then try again"


class Held(NamedTuple):
    """Another owner has the session, and its lease counts for so many seconds more."""

    owner: str
    seconds: float


class Taken(NamedTuple):
    """A session that was just taken: the owner that died, and what is in its spool."""

    epoch: int
    before: int
    """The epoch of the owner before."""
    sent: float
    """When the statement that took it was sent, by the clock of `LiveRows.seconds_left`."""
    previous: str | None
    base: int
    last: int
    records: Sequence[tuple[int, bytes]]
