from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from snapshot_plugin import InvalidInput
from snapshot_plugin.operations.text import moment

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("5 min ago", timedelta(minutes=5)),
        ("12h", timedelta(hours=12)),
        ("3d", timedelta(days=3)),
        ("2w", timedelta(weeks=2)),
        ("now", timedelta(0)),
    ],
)
def test_duration_counts_back_from_now(text: str, ago: timedelta) -> None:
    assert moment(text, NOW) == NOW - ago


def test_date_covers_the_whole_day() -> None:
    begin, end = moment("2026-11-01", NOW), moment("2026-11-01", NOW, end=True)

    assert begin.astimezone().strftime("%F %T") == "2026-11-01 00:00:00"
    assert end.astimezone().strftime("%F %T") == "2026-11-01 23:59:59"
    assert moment("yesterday", NOW) == moment("today", NOW) - timedelta(days=1)


def test_time_without_a_zone_is_local() -> None:
    assert moment("2026-11-01T10:00+02:00", NOW) == datetime(2026, 11, 1, 8, tzinfo=UTC)
    assert moment("2026-11-01T10:00", NOW) == datetime(2026, 11, 1, 10).astimezone()


@pytest.mark.parametrize("text", ["", "soon", "3 fortnights", "2026-02-30", "999999y"])
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        moment(text, NOW)
