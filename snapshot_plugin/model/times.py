"""Times in UTC with one notation, and durations such as ``5m``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from snapshot_plugin.errors import InvalidSnapshot

__all__ = ["as_utc", "moment_of", "rfc3339", "span_of", "utc_now"]

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_SPAN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|m|h|d|w|)\s*")


def utc_now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


def span_of(text: str) -> timedelta | None:
    """Parse a duration: ``90`` (seconds), ``30s``, ``5m``, ``12h``, ``7d``, ``4w``; None for anything else."""
    match = _SPAN.fullmatch(text)
    try:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]]) if match else None
    except OverflowError:
        return None


def as_utc(moment: datetime) -> datetime:
    """The same moment in UTC. A time without a zone is refused: it could mean any of 26 hours."""
    if moment.utcoffset() is None:
        raise InvalidSnapshot(
            f"the time {moment.isoformat()} has no time zone", hint="use datetime.now(UTC), never a naive time"
        )
    if moment.tzinfo is UTC:
        return moment
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
    """Parse *text* as a time in UTC; ValueError if it is not a time, or has no time zone."""
    if type(text) is not str:
        raise ValueError(f"{text!r} is not a time")
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is UTC else as_utc(moment)
