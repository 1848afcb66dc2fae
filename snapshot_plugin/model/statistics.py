"""Tokens, cost and activity over time, counted from lists and histories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal, NamedTuple, TypeVar

from snapshot_plugin.model.meta import SnapshotMeta

__all__ = [
    "By",
    "Counted",
    "Group",
    "TimeSlot",
    "active_days",
    "active_hours",
    "daily",
    "grouped",
    "slots_of",
    "total",
]

By = Literal["day", "week", "agent", "project"]
Number = TypeVar("Number", int, float)

SLOT = timedelta(minutes=15)
"""The resolution of activity. The hours of every time zone begin at a multiple of it."""
UNKNOWN = "unknown"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeSlot(NamedTuple):
    """The activity of a session in one quarter of an hour."""

    start: datetime
    messages: int = 0
    turns: int = 0
    tokens: int = 0
    cost: float = 0.0


class Counted(NamedTuple):
    """A session and its activity over time."""

    meta: SnapshotMeta
    slots: Sequence[TimeSlot]


class Group(NamedTuple):
    """The totals of one day, week, agent or project. `sessions` counts the sessions with any activity."""

    key: str
    sessions: int
    messages: int
    turns: int
    tokens: int
    cost: float


def slots_of(history: Iterable[SnapshotMeta], said: Iterable[datetime | None] = ()) -> list[TimeSlot]:
    """The activity of a session over time, earliest first.

    *history* is its snapshots, oldest first: the increase since the previous snapshot counts at the time the
    session last changed. *said* is the times of its messages: one without a time, as the last of an interrupted
    turn, counts with the message before it. If no message has a time, the growth of the snapshots is used.
    """
    moments = _without_gaps(said)
    happened = [TimeSlot(moment, messages=1) for moment in moments]
    before = SnapshotMeta(session_id="-", seq=0, saved_at=_EPOCH)
    for meta in history:
        if meta.state == "ok":
            growth = _growth(before, meta)
            happened.append(growth._replace(messages=0) if moments else growth)
            before = meta
    return _in_slots(happened)


def _without_gaps(said: Iterable[datetime | None]) -> list[datetime]:
    times = list(said)
    last = next((time for time in times if time is not None), None)
    return [] if last is None else [last := time or last for time in times]


def _growth(before: SnapshotMeta, after: SnapshotMeta) -> TimeSlot:
    return TimeSlot(
        after.changed_at,
        messages=_more(before.messages, after.messages),
        turns=_more(before.turns, after.turns),
        tokens=_more(before.tokens, after.tokens),
        cost=_more(before.cost or 0.0, after.cost or 0.0),
    )


def _more(before: Number, after: Number) -> Number:
    """The increase. A counter that decreased was reset."""
    return after - before if after >= before else after


def _in_slots(happened: Iterable[TimeSlot]) -> list[TimeSlot]:
    slots: defaultdict[datetime, list[TimeSlot]] = defaultdict(list)
    for each in happened:
        slots[each.start - (each.start - _EPOCH) % SLOT].append(each)
    summed = [_sum(start, parts) for start, parts in sorted(slots.items())]
    return [slot for slot in summed if any(slot[1:])]


def _sum(start: datetime, parts: Sequence[TimeSlot]) -> TimeSlot:
    return TimeSlot(
        start,
        messages=sum(part.messages for part in parts),
        turns=sum(part.turns for part in parts),
        tokens=sum(part.tokens for part in parts),
        cost=round(sum((part.cost for part in parts), 0.0), 9),
    )


# Counting --------------------------------------------------------------------------------------------------


def grouped(sessions: Iterable[Counted], by: By, *, zone: tzinfo | None = None) -> list[Group]:
    """The totals of each group: days and weeks in order of time, agents and projects by tokens.

    Days begin at midnight in *zone* (default: the local time zone).
    """
    parts: defaultdict[str, list[tuple[str, TimeSlot]]] = defaultdict(list)
    for session in sessions:
        for slot in session.slots:
            parts[_key(session.meta, slot, by, zone)].append((session.meta.session_id, slot))
    groups = [_group(key, items) for key, items in sorted(parts.items())]
    return groups if by in ("day", "week") else sorted(groups, key=lambda group: -group.tokens)


def total(sessions: Iterable[Counted]) -> Group:
    """The totals of all sessions."""
    return _group("total", [(session.meta.session_id, slot) for session in sessions for slot in session.slots])


def _group(key: str, items: Sequence[tuple[str, TimeSlot]]) -> Group:
    whole = _sum(_EPOCH, [slot for _, slot in items])
    return Group(key, len({name for name, _ in items}), whole.messages, whole.turns, whole.tokens, whole.cost)


def _key(meta: SnapshotMeta, slot: TimeSlot, by: By, zone: tzinfo | None) -> str:
    if by == "agent":
        return meta.agent or UNKNOWN
    if by == "project":
        return meta.cwd or UNKNOWN
    day = _local(slot.start, zone).date()
    year, week, _ = day.isocalendar()
    return f"{year:04}-W{week:02}" if by == "week" else day.isoformat()


def _local(moment: datetime, zone: tzinfo | None) -> datetime:
    """The local time. Times at the limits of `datetime`, which cannot be converted, are returned unchanged."""
    try:
        return moment.astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return moment


def daily(groups: Sequence[Group], *, limit: int = 366) -> list[Group]:
    """The last *limit* days for a chart, including the days without activity."""
    if not groups:
        return []
    known = {date.fromisoformat(group.key).toordinal(): group for group in groups}
    first, last = max(min(known), max(known) - limit + 1), max(known)
    return [known.get(day) or _nothing(day) for day in range(first, last + 1)]


def _nothing(day: int) -> Group:
    return Group(date.fromordinal(day).isoformat(), 0, 0, 0, 0, 0.0)


def active_hours(sessions: Iterable[Counted], *, zone: tzinfo | None = None) -> list[int]:
    """The number of messages in each hour of the day, from midnight on."""
    return _messages(sessions, 24, lambda moment: _local(moment, zone).hour)


def active_days(sessions: Iterable[Counted], *, zone: tzinfo | None = None) -> list[int]:
    """The number of messages on each day of the week, from Monday on."""
    return _messages(sessions, 7, lambda moment: _local(moment, zone).weekday())


def _messages(sessions: Iterable[Counted], count: int, place: Callable[[datetime], int]) -> list[int]:
    counts = [0] * count
    for session in sessions:
        for slot in session.slots:
            counts[place(slot.start)] += slot.messages
    return counts
