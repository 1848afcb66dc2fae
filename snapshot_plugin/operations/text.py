"""Format values for a terminal, and parse times as people write them. Pure: the time comes in."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime, time, timedelta

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.inert import plain, several

__all__ = ["ago", "clock_time", "count", "cut", "moment", "money", "pad", "plain", "several", "size", "width"]


def width(text: str) -> int:
    """How many columns *text* takes."""
    return len(text) if text.isascii() else sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """Return *text* in at most that many columns, with an ellipsis if it was cut."""
    if width(text) <= columns:
        return text
    used, kept = 1, []
    for char in text:
        used += _columns(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…" if columns > 0 else ""


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Pad *text* with spaces, on its left if *right* is true."""
    space = " " * max(0, columns - width(text))
    return space + text if right else text + space


_STEPS = ((60, "s"), (60, "m"), (24, "h"), (7, "d"), (52, "w"))


def ago(moment: datetime, now: datetime) -> str:
    """How long ago, for a column: ``4m``, ``3h``, ``2w``. A moment in the future is ``now``."""
    return "now" if now - moment < timedelta(seconds=1) else span(moment, now)


def long_ago(moment: datetime, now: datetime) -> str:
    """The same for a sentence: ``4m ago``, or ``just now``."""
    short = ago(moment, now)
    return "just now" if short == "now" else f"{short} ago"


def span(moment: datetime, now: datetime) -> str:
    """Return the time from *moment* to *now* in one unit: ``0s``, ``4m``, ``3h``, ``2w``."""
    number = max(0, int((now - moment).total_seconds()))
    for step, unit in _STEPS:
        if number < step:
            return f"{number}{unit}"
        number //= step
    return f"{number}y"


def clock_time(moment: datetime) -> str:
    """A moment as the user's clock shows it: ``2026-11-16 04:12``."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def size(number: int) -> str:
    """Bytes in IEC units: ``512 B``, ``17 KiB``, ``1.4 GiB``."""
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 999.5 and len(units) > 1:  # noqa: PLR2004 — no column is wider than four digits
        value /= 1024
        units.pop(0)
    digits = 1 if units[0] != "B" and value < 9.95 else 0  # noqa: PLR2004 — where a tenth still tells something
    return f"{value:.{digits}f} {units[0]}"


_ABSURD = 10**15


def count(number: int) -> str:
    """A large number in short: ``950``, ``12k``, ``3.4M``."""
    if abs(number) >= _ABSURD:
        return ">999T" if number > 0 else "<-999T"
    for limit, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= limit * 0.9995:
            value = number / limit
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"  # noqa: PLR2004 — as above
    return str(number)


def with_store(command: str, place: str | None) -> str:
    """Return *command* with ``--store`` *place*; unchanged if no store was named."""
    if not place:
        return command
    import shlex

    return f"{command} --store {shlex.quote(place)}"


def money(cost: float | None, currency: str | None = None) -> str:
    """A cost as text; empty if unknown."""
    if cost is None:
        return ""
    return f"{cost:.2f} {currency}" if currency else f"${cost:.2f}"


# Times as people write them -----------------------------------------------------------------------------------


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
