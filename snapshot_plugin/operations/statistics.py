"""Tokens, cost, activity and topics over time."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from snapshot_plugin.model.ids import is_companion
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.searching import search_index

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.model.statistics import Counted
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.search.content import Facts
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Day", "GroupRow", "Statistics", "Storage", "TopicRow", "statistics"]


class GroupRow(Part):
    """Totals of one day, week, agent or project. `sessions` are those with any activity."""

    key: str
    sessions: int
    messages: int
    turns: int
    tokens: int
    cost: float


class Day(Part):
    """One day, also without any activity."""

    day: str
    tokens: int
    cost: float


class TopicRow(Part):
    """A word, and how many sessions are about it."""

    term: str
    sessions: int


class Storage(Part):
    """The whole store's size, against plain JSON: of the newest states alone, and of every snapshot in full."""

    store_bytes: int
    plain_bytes: int | None
    copies_bytes: int | None


class Statistics(Document):
    """Where tokens and time went."""

    kind: ClassVar[str] = "stats"
    rows: ClassVar[str] = "groups"
    by: str
    since: datetime | None
    total: GroupRow
    groups: tuple[GroupRow, ...]
    daily: tuple[Day, ...]
    """Every day of the last year since the first activity, including days without any."""
    hours: tuple[int, ...]
    """Messages in each hour of the day, from midnight on, on the user's clock. Empty with --quick."""
    weekdays: tuple[int, ...]
    """Messages on each day of the week, from Monday on. Empty with --quick."""
    topics: tuple[TopicRow, ...]
    storage: Storage
    unreadable: tuple[str, ...]
    as_of: datetime


async def statistics(
    work: Work, store: SnapshotStore, *, by: Any = "day", since: datetime | None = None, quick: bool = False
) -> Statistics:
    """Count tokens, time and topics. *quick* opens no conversation, so it has no hours and topics."""
    metas, facts, unreadable = (await store.list(), {}, ()) if quick else await _indexed(work, store)
    return _statistics(metas, facts, by=by, since=since, unreadable=unreadable, as_of=work.now)


async def _indexed(
    work: Work, store: SnapshotStore
) -> tuple[Sequence[SnapshotMeta], Mapping[str, Facts], tuple[str, ...]]:
    """Return the store's list, the indexed facts of each session, and the ids that cannot be read."""
    async with search_index(work, store) as index:
        metas = await index.listed()
        facts, unreadable = await index.facts(metas, functools.partial(work.progress, "indexing"))
        return metas, facts, unreadable


def _statistics(
    metas: Sequence[SnapshotMeta], facts: Mapping[str, Facts], *, by: Any, since: datetime | None, **rest: Any
) -> Statistics:
    from snapshot_plugin.model.statistics import active_days, active_hours, daily, grouped, total
    from snapshot_plugin.model.topics import common_topics

    sessions = list(_counted(metas, facts, since))
    topics = common_topics([facts[s.meta.session_id].topics for s in sessions if s.meta.session_id in facts])
    days = daily(grouped(sessions, "day"))
    return Statistics(
        by=by,
        since=since,
        total=GroupRow.from_fields(total(sessions)),
        groups=tuple(map(GroupRow.from_fields, grouped(sessions, by))),
        daily=tuple(Day.from_fields(day, day=day.key) for day in days),
        hours=tuple(active_hours(sessions)) if facts else (),
        weekdays=tuple(active_days(sessions)) if facts else (),
        topics=tuple(map(TopicRow.from_fields, topics)),
        storage=Storage(
            store_bytes=sum(meta.size_bytes for meta in metas),
            plain_bytes=sum(each.plain_bytes for each in facts.values()) if facts else None,
            copies_bytes=sum(each.copies_bytes for each in facts.values()) if facts else None,
        ),
        **rest,
    )


def _counted(
    metas: Sequence[SnapshotMeta], facts: Mapping[str, Facts], since: datetime | None
) -> Iterator[Counted]:
    """Return the sessions with activity since then; without facts, all activity counts at the last change."""
    from snapshot_plugin.model.statistics import Counted, slots_of

    for meta in metas:
        known = facts.get(meta.session_id)
        slots = [slot for slot in (known.slots if known else slots_of([meta])) if not since or slot.start >= since]
        if slots and not is_companion(meta.session_id):
            yield Counted(meta, slots)
