"""Words and numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from snapshot_plugin.operations.text import ago, long_ago, span, with_store

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("before", "column", "sentence", "length"),
    [
        (timedelta(seconds=-90), "now", "just now", "0s"),  # a clock that was set back
        (timedelta(0), "now", "just now", "0s"),
        (timedelta(seconds=59), "59s", "59s ago", "59s"),
        (timedelta(minutes=4), "4m", "4m ago", "4m"),
        (timedelta(hours=25), "1d", "1d ago", "1d"),
        (timedelta(weeks=60), "1y", "1y ago", "1y"),
    ],
)
def test_age_is_shown_in_the_largest_fitting_unit(
    before: timedelta, column: str, sentence: str, length: str
) -> None:
    moment = NOW - before

    assert (ago(moment, NOW), long_ago(moment, NOW), span(moment, NOW)) == (column, sentence, length)


def test_command_for_a_named_store_quotes_it_for_the_shell() -> None:
    assert with_store("asnap undo", None) == "asnap undo"
    assert with_store("asnap undo", "./my store") == "asnap undo --store './my store'"
