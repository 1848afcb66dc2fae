"""Moments: always in UTC, written one way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from snapshot_plugin.errors import InvalidSnapshot

__all__ = ["as_utc", "moment_of", "rfc3339"]


def as_utc(moment: datetime) -> datetime:
    """The same moment in UTC. A time without a zone is refused: it could mean any of 26 hours."""
    if moment.utcoffset() is None:
        raise InvalidSnapshot(
            f"the time {moment.isoformat()} has no time zone", hint="use datetime.now(UTC), never a naive time"
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidSnapshot(f"the time {moment.isoformat()} has no place in UTC's years 1 to 9999") from None


def rfc3339(moment: datetime) -> str:
    """A UTC time as stored: ``2026-11-16T00:51:47.000001Z``; always six digits, so text sorts as time."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"


def moment_of(text: Any) -> datetime:
    """The moment that *text* tells, in UTC; ValueError if it tells none, or no time zone."""
    if type(text) is not str:
        raise ValueError(f"{text!r} is no time")
    return as_utc(datetime.fromisoformat(text))
