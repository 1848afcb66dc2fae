from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import SnapshotMeta
from snapshot_plugin.model.statistics import (
    By,
    Counted,
    Group,
    TimeSlot,
    active_days,
    active_hours,
    daily,
    grouped,
    slots_of,
    total,
)
from snapshot_plugin.model.topics import Topic, common_topics, keywords
from tests.tries import tries

MONDAY = datetime(2026, 3, 2, 9, 7, tzinfo=UTC)


def meta(seq: int = 1, *, at: datetime = MONDAY, name: str = "s", **fields: Any) -> SnapshotMeta:
    return SnapshotMeta(session_id=name, seq=seq, saved_at=at, **fields)


def counted(name: str, *slots: TimeSlot, **fields: Any) -> Counted:
    return Counted(meta(name=name, **fields), slots)


def test_increase_since_the_previous_snapshot_counts_at_its_time() -> None:
    later = MONDAY + timedelta(days=1)
    history = [meta(1, tokens=100, cost=0.1, turns=1), meta(2, at=later, tokens=250, cost=0.3, turns=3)]

    first, second = slots_of(history)
    assert (first.start, first.tokens, first.cost, first.turns) == (MONDAY.replace(minute=0), 100, 0.1, 1)
    assert (second.tokens, second.cost, second.turns) == (150, 0.2, 2)


def test_change_time_counts_instead_of_storage_time() -> None:
    imported = meta(at=MONDAY + timedelta(days=300), updated_at=MONDAY, tokens=5)
    assert slots_of([imported])[0].start == MONDAY.replace(minute=0)


def test_counter_that_decreased_was_reset() -> None:
    history = [meta(1, tokens=100), meta(2, tokens=30), meta(3, tokens=50)]
    assert sum(slot.tokens for slot in slots_of(history)) == 150


def test_damaged_snapshot_is_not_counted() -> None:
    history = [meta(1, tokens=100), meta(2, state="damaged"), meta(3, tokens=130)]
    assert sum(slot.tokens for slot in slots_of(history)) == 130


def test_message_without_a_time_counts_with_the_one_before_it() -> None:
    (slot,) = slots_of([meta(messages=4)], [None, MONDAY, MONDAY, None])
    assert (slot.start, slot.messages) == (MONDAY.replace(minute=0), 4)


def test_messages_count_at_their_own_times() -> None:
    said = [MONDAY, MONDAY + timedelta(hours=2)]
    assert [(slot.start.hour, slot.messages) for slot in slots_of([meta(messages=2)], said)] == [(9, 1), (11, 1)]


def test_messages_without_times_count_when_the_snapshots_grew() -> None:
    history = [meta(1, messages=2), meta(2, at=MONDAY + timedelta(hours=5), messages=6)]
    assert [(s.start.hour, s.messages) for s in slots_of(history, [None] * 6)] == [(9, 2), (14, 4)]


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 50)), max_size=8))
@tries(100)
def test_growing_counter_is_neither_lost_nor_counted_twice(steps: list[tuple[int, int]]) -> None:
    tokens, moment, history = 0, MONDAY, []
    for seq, (spent, hours) in enumerate(steps, 1):
        tokens, moment = tokens + spent, moment + timedelta(hours=hours)
        history.append(meta(seq, at=moment, tokens=tokens))

    slots = slots_of(history)
    assert sum(slot.tokens for slot in slots) == tokens
    for by in ("day", "week", "agent", "project"):
        assert sum(group.tokens for group in grouped([Counted(meta(), slots)], by)) == tokens


def test_days_are_in_the_users_time_zone() -> None:
    late = TimeSlot(datetime(2026, 3, 2, 23, 30, tzinfo=UTC), tokens=5)
    berlin, new_york = timezone(timedelta(hours=1)), timezone(timedelta(hours=-5))

    assert [group.key for group in grouped([counted("s", late)], "day", zone=berlin)] == ["2026-03-03"]
    assert [group.key for group in grouped([counted("s", late)], "day", zone=new_york)] == ["2026-03-02"]


def test_weeks_are_iso_weeks_in_their_order() -> None:
    slots = [
        TimeSlot(datetime(2027, 1, 3, tzinfo=UTC), tokens=1),
        TimeSlot(datetime(2026, 12, 21, tzinfo=UTC), tokens=2),
    ]
    assert [group.key for group in grouped([counted("s", *slots)], "week", zone=UTC)] == ["2026-W52", "2026-W53"]


@pytest.mark.parametrize(("by", "field"), [("agent", "agent"), ("project", "cwd")])
def test_agents_and_projects_are_ordered_by_usage(by: By, field: str) -> None:
    slot = TimeSlot(MONDAY, tokens=10, cost=0.5, turns=1, messages=2)
    sessions = [
        counted("a", slot, **{field: "small"}),
        counted("b", slot, **{field: "large"}),
        counted("c", slot, slot, **{field: "large"}),
        counted("d", slot._replace(tokens=1)),
    ]
    assert grouped(sessions, by) == [
        Group("large", 2, 6, 3, 30, 1.5),
        Group("small", 1, 2, 1, 10, 0.5),
        Group("unknown", 1, 2, 1, 1, 0.5),
    ]
    assert total(sessions) == Group("total", 4, 10, 5, 41, 2.5)


def test_days_without_activity_are_included() -> None:
    days = [Group("2026-02-27", 1, 1, 1, 5, 0.0), Group("2026-03-02", 1, 1, 1, 7, 0.0)]
    assert [(group.key, group.tokens) for group in daily(days)] == [
        ("2026-02-27", 5),
        ("2026-02-28", 0),
        ("2026-03-01", 0),
        ("2026-03-02", 7),
    ]


def test_extreme_times_cause_no_crash_and_no_millions_of_days() -> None:
    west, east = timezone(timedelta(hours=-5)), timezone(timedelta(hours=5))
    ends = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 45, tzinfo=UTC)]
    for zone in (west, east, None):
        sessions = [counted("s", *(TimeSlot(moment, messages=1, tokens=1) for moment in ends))]
        days = grouped(sessions, "day", zone=zone)
        assert [len(day.key) for day in days] == [10, 10]
        assert len(grouped(sessions, "week", zone=zone)) == 2
        assert len(daily(days)) == 366
        assert (sum(active_hours(sessions, zone=zone)), sum(active_days(sessions, zone=zone))) == (2, 2)


def test_hours_and_weekdays_count_messages() -> None:
    sessions = [
        counted("a", TimeSlot(MONDAY, messages=3), TimeSlot(MONDAY + timedelta(days=1, hours=1), messages=2))
    ]
    hours, days = active_hours(sessions, zone=UTC), active_days(sessions, zone=UTC)

    assert (hours[9], hours[10], sum(hours)) == (3, 2, 5)
    assert (days[0], days[1], sum(days)) == (3, 2, 5)


# Topics ------------------------------------------------------------------------------------------------------


def test_recurring_words_of_a_conversation_are_its_keywords() -> None:
    said = ["Please fix the login test", "the login page fails", "why does LOGIN need the database?"]
    assert keywords(said, limit=2) == ["login", "database"]


def test_one_pasted_log_does_not_decide_the_topics() -> None:
    assert keywords(["spam " * 1000, "parser", "the parser again"], limit=1) == ["parser"]


def test_words_common_to_every_conversation_are_not_topics() -> None:
    assert keywords(["please could you make this work, thanks", "0x1f 12345 a b"]) == []


def test_topics_are_shared_by_several_sessions() -> None:
    sessions = [["login", "database"], ["login", "css"], ["login", "database"]]
    assert common_topics(sessions) == [Topic("login", 3), Topic("database", 2)]


def test_word_in_nearly_every_session_is_not_a_topic() -> None:
    sessions = [["python", "login"] if number < 4 else ["python", f"only{number}"] for number in range(10)]
    assert common_topics(sessions) == [Topic("login", 4)]


def test_without_shared_words_each_sessions_own_are_shown() -> None:
    assert common_topics([["login"], ["css"]]) == [Topic("css", 1), Topic("login", 1)]
    assert common_topics([]) == []
