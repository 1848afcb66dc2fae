"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from snapshot_plugin.model.times import as_utc

__all__ = ["FixedClock"]

_START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FixedClock:
    """Pass it as ``clock``; calling it returns the time.

    ::

        clock = FixedClock()
        store = MemoryStore(clock=clock)
        clock.advance(timedelta(days=31))
    """

    def __init__(self, now: datetime = _START) -> None:
        self._now = as_utc(now)

    def __call__(self) -> datetime:
        """The present moment, in UTC; the same one until `advance`."""
        return self._now

    def advance(self, step: timedelta) -> datetime:
        """Move on by *step* (back, where it is negative, as real clocks do) and return the new time."""
        self._now += step
        return self._now
