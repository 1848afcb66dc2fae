"""Numbers that were promised and that tests elsewhere replace by smaller ones, to be quick."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from snapshot_plugin.manager.persistent import persistent_session
from snapshot_plugin.memory import MemoryLimits, ProjectMemory
from snapshot_plugin.store.engine import StoreLimits

MIB = 1024 * 1024


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        pytest.param("auto_save_interval", 30, marks=pytest.mark.requirement("ONERING-OPTION-INTERVAL")),
        pytest.param("save_on_exit", True, marks=pytest.mark.requirement("ONERING-OPTION-EXIT")),
        pytest.param("load_on_enter", True, marks=pytest.mark.requirement("ONERING-OPTION-ENTER")),
    ],
)
def test_persistent_session_has_the_promised_options(option: str, expected: object) -> None:
    assert defaults_of(persistent_session)[option] == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        pytest.param("entry_bytes", MIB, marks=pytest.mark.requirement("GASOLINE-LIMIT-ENTRY")),
        pytest.param("project_bytes", 10 * MIB, marks=pytest.mark.requirement("GASOLINE-LIMIT-PROJECT")),
        pytest.param("project_bytes", 10 * MIB, marks=pytest.mark.requirement("GASOLINE-P-LIMIT-PROJECT")),
        pytest.param("all_projects_bytes", 100 * MIB, marks=pytest.mark.requirement("GASOLINE-P-LIMIT-GLOBAL")),
        pytest.param("baselines", 50, marks=pytest.mark.requirement("GASOLINE-P-LIMIT-BASELINES")),
        pytest.param("errors", 500, marks=pytest.mark.requirement("GASOLINE-P-LIMIT-ERRORS")),
        pytest.param("error_age", timedelta(days=30), marks=pytest.mark.requirement("GASOLINE-ERROR-AGE")),
        pytest.param("endpoints", 200, marks=pytest.mark.requirement("GASOLINE-P-LIMIT-ENDPOINTS")),
        pytest.param(
            "performance_age", timedelta(days=30), marks=pytest.mark.requirement("GASOLINE-P-EVICT-PERFORMANCE")
        ),
    ],
)
def test_project_memory_has_the_promised_limits(limit: str, expected: object) -> None:
    assert getattr(MemoryLimits(), limit) == expected


@pytest.mark.requirement("GASOLINE-FLUSH-30S", "GASOLINE-P-WRITE-BUFFERED", "GASOLINE-P-EDGE-CRASH")
def test_a_project_memory_is_flushed_every_thirty_seconds() -> None:
    assert defaults_of(ProjectMemory)["flush_interval"] == 30


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        pytest.param("message_bytes", MIB, marks=pytest.mark.requirement("TERMINAL-LIMIT-MESSAGE")),
        pytest.param("session_bytes", 100 * MIB, marks=pytest.mark.requirement("TERMINAL-LIMIT-SESSION")),
    ],
)
def test_store_reports_sizes_at_the_promised_limits(limit: str, expected: int) -> None:
    assert getattr(StoreLimits(), limit) == expected
