"""Parse a time as people write it: ``3d`` (ago), ``12h``, ``yesterday``, ``2026-11-01``, ``2026-11-01T10:00``."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from snapshot_plugin.errors import InvalidInput

__all__ = ["moment"]

_AGO = re.compile(r"(\d{1,6})\s*(s|m|min|h|d|w|mo|y)(?:\s+ago)?\Z")
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800, "mo": 2_592_000, "y": 31_536_000}
_DAYS = {"today": 0, "yesterday": 1}
_LENGTH_OF_A_DATE = 10


def moment(text: str, now: datetime, *, end: bool = False) -> datetime:
    """Parse *text* relative to *now*, on the user's clock; a day means its start, or with *end* its end.

    Raises:
        InvalidInput: it is not a time.
    """
    try:
        return _meant(text.strip().lower(), now, end=end)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{text!r} is not a time", hint="write 3d, 12h, yesterday, 2026-11-01 or 2026-11-01T10:00"
        ) from None


def _meant(word: str, now: datetime, *, end: bool) -> datetime:
    if ago := _AGO.match(word):
        return now - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
    if word == "now":
        return now
    if word in _DAYS:
        word = (now.astimezone() - timedelta(days=_DAYS[word])).date().isoformat()
    found = datetime.fromisoformat(word.upper())
    if end and len(word) == _LENGTH_OF_A_DATE:
        found = datetime.combine(found.date(), time.max)
    return found if found.tzinfo else found.astimezone()
