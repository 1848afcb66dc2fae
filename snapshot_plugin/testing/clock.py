"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from snapshot_plugin.model.times import as_utc

__all__ = ["FixedClock"]

_START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FixedClock:
    """Pass it as ``clock``. A call returns the time, which changes only by `advance`.

    ::

        clock = FixedClock()
        store = MemoryStore(clock=clock)
        clock.advance(timedelta(days=31))
    """

    def __init__(self, now: datetime = _START) -> None:
        self._now = as_utc(now)

    def __call__(self) -> datetime:
        """The clock's time, in UTC."""
        return self._now

    def advance(self, step: timedelta) -> datetime:
        """Move the clock by *step* (backwards if it is negative) and return the new time."""
        self._now += step
        return self._now
