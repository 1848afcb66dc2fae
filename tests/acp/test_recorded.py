from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from snapshot_plugin import SessionSnapshot
from snapshot_plugin.acp.reducer import reduce_events
from snapshot_plugin.acp.state import context_window, expected_grade, last_restore
from snapshot_plugin.testing import make_snapshot

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def recorded(*events: dict[str, Any]) -> SessionSnapshot:
    return reduce_events(make_snapshot(session_id="s"), list(events), NOW)


@pytest.mark.parametrize(
    ("able", "grade"),
    [
        ({"load": True, "resume": True}, "native-load"),
        ({"load": False, "resume": True}, "native-resume"),
        ({"load": False, "resume": False}, "context"),
        ({"load": "yes"}, None),
        (None, None),
    ],
)
def test_agents_capabilities_predict_the_restore_grade(able: Any, grade: str | None) -> None:
    assert expected_grade(recorded({"agent": {"sessionId": "a1", "able": able}})) == grade


def test_note_that_was_not_sent_predicts_another_one() -> None:
    able = {"agent": {"sessionId": "a1", "able": {"load": True}}}
    one, two = ({"prompt": [{"type": "text", "text": text}]} for text in ("one", "two"))
    restored = {"restored": {"grade": "context", "messages": 1}}
    assert expected_grade(recorded(able, one, restored)) == "context"
    assert expected_grade(recorded(able, one, restored, two)) == "native-load"


def test_record_without_a_session_of_the_agent_predicts_context() -> None:
    assert expected_grade(recorded({"agent": {"able": {"load": True}}})) == "context"


def test_the_last_restore_is_remembered() -> None:
    reports = [{"grade": grade, "messages": 2} for grade in ("native-load", "context")]

    assert last_restore(recorded()) is None
    assert last_restore(recorded(*({"restored": report} for report in reports))) == reports[1]
    assert last_restore(recorded({"restored": "nonsense"})) is None


def test_context_usage_is_the_agents_last_report() -> None:
    updates = [{"update": {"sessionUpdate": "usage_update", "used": used, "size": 200}} for used in (50, 70)]

    assert context_window(recorded()) is None
    assert context_window(recorded(*updates)) == (70, 200)
