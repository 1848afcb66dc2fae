"""`session_store` and `load_session_context`, through the official client."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp_types import TextContent

from snapshot_plugin.memory import files
from snapshot_plugin.testing import FixedClock
from tests.mcp.servers import connected, refused, told

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("GASOLINE-TOOL-ACTION", "GASOLINE-P-TOOL-ACTIONS")
async def test_the_tools_are_typed_and_annotated(project: Path) -> None:
    async with connected(project) as (client, _):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {
        "session_store", "load_session_context", "record_error", "observe_endpoint", "set_noise",
        "compare_baseline", "list_snapshots", "search_sessions", "show_session", "take_snapshot", "resume_plan",
    }  # fmt: skip
    for name, tool in tools.items():
        assert tool.description
        assert tool.title
        assert (tool.output_schema or {}).get("type") == (None if name == "load_session_context" else "object")
        assert tool.annotations is not None
        changes = ("session_store", "record_error", "observe_endpoint", "set_noise", "take_snapshot")
        assert tool.annotations.read_only_hint is (name not in changes)
        assert tool.annotations.open_world_hint is False
    store = tools["session_store"]
    assert store.annotations is not None
    assert store.annotations.destructive_hint is True
    assert store.input_schema["required"] == ["action"]
    assert store.input_schema["properties"]["action"]["enum"] == ["save", "load", "list", "delete", "stats"]
    assert tools["load_session_context"].input_schema["properties"] == {}
    assert "more" not in store.input_schema["properties"], "it takes what agents make up; they need not know"
    taking = tools["take_snapshot"].annotations
    assert taking is not None
    assert taking.destructive_hint is False


@pytest.mark.requirement(
    "GASOLINE-TOOL-CONTEXT",
    "GASOLINE-TOOL-FRESH",
    "GASOLINE-TOOL-SAVE",
    "GASOLINE-TOOL-LOAD",
    "GASOLINE-TOOL-LIST",
    "GASOLINE-TOOL-DELETE",
    "GASOLINE-TOOL-STATS",
    "GASOLINE-P-TOOL-CONTEXT",
    "GASOLINE-P-TOOL-ACTIONS",
)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_memory_saved_by_one_session_is_found_by_the_next(project: Path, mode: str) -> None:
    data = {"choice": "sqlite", "why": ["small", "local"]}
    async with connected(project, mode=mode) as (client, _):
        assert (await told(client, "load_session_context"))["session_count"] == 1
        saved = await told(client, "session_store", action="save", namespace="decisions", key="db", data=data)
        assert (saved["persistence"], saved["notices"]) == ("disk", [])
    async with connected(project, mode=mode) as (client, _):
        context = await told(client, "load_session_context")
        assert (context["session_count"], context["other_namespaces"]) == (2, {"decisions": ["db"]})
        assert context["last_session"]
        loaded = await told(client, "session_store", action="load", namespace="decisions", key="db")
        assert loaded["data"] == data
        listed = await told(client, "session_store", action="list", namespace="decisions")
        assert listed["keys"] == ["db"]
        assert (await told(client, "session_store", action="list"))["namespaces"] == {"decisions": 1}
        stats = (await told(client, "session_store", action="stats"))["stats"]
        assert (stats["namespaces"]["decisions"]["entries"], stats["sessions_recorded"]) == (1, 2)
        assert stats["total_size_bytes"] == (project / ".asnap/decisions/db.json").stat().st_size
        await told(client, "session_store", action="delete", namespace="decisions", key="db")
        assert await refused(client, "session_store", action="load", namespace="decisions", key="db") == "not_found"


@pytest.mark.requirement(
    "GASOLINE-TOOL-REQUIRED",
    "GASOLINE-TOOL-LOAD",
    "GASOLINE-P-TOOL-KEY",
    "GASOLINE-P-TOOL-DATA",
    "GASOLINE-P-TOOL-NAMESPACE",
)
async def test_errors_are_results_the_model_can_read(project: Path) -> None:
    async with connected(project) as (client, _):
        result = await client.call_tool("session_store", {"action": "load", "namespace": "a", "key": "b"})
        assert result.is_error
        [text] = result.content
        assert isinstance(text, TextContent)
        assert text.text.startswith("not_found: ")
        big = "x" * (1024 * 1024 + 1)
        store = "session_store"
        assert await refused(client, store, action="save", namespace="a", key="b", data=big) == "limit_exceeded"
        assert await refused(client, store, action="save", namespace="a", key="b") == "invalid_input"
        assert await refused(client, store, action="save", namespace="a", data=1) == "invalid_input"
        assert await refused(client, store, action="load", namespace="a") == "invalid_input"
        assert await refused(client, store, action="delete") == "invalid_input"
        assert await refused(client, store, action="load", key="b") == "not_found", "the default namespace"
        assert await refused(client, store, action="save", namespace="..", key="b", data=1) == "invalid_input"
        unknown = await client.call_tool(store, {"action": "destroy"})
        assert unknown.is_error


@pytest.mark.requirement("GASOLINE-P-PRIVACY-CLEAR")
async def test_deleting_everything_needs_confirmation(project: Path) -> None:
    async with connected(project) as (client, _):
        await told(client, "session_store", action="save", namespace="a", key="k", data=1)
        assert await refused(client, "session_store", action="delete", namespace="*") == "invalid_input"
        assert (await told(client, "session_store", action="list"))["namespaces"] == {"a": 1}
        cleared = await told(client, "session_store", action="delete", namespace="*", confirm=True)
        assert cleared["cleared"] is True
        assert (await told(client, "session_store", action="list"))["namespaces"] == {}


async def test_full_disk_is_reported_with_every_answer(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with connected(project) as (client, _):
        monkeypatch.setattr(files, "write_all", full)
        code = await refused(client, "session_store", action="save", namespace="a", key="k", data=[1])
        assert code == "store_unavailable"
        loaded = await told(client, "session_store", action="load", namespace="a", key="k")
        assert (loaded["data"], loaded["persistence"], len(loaded["notices"])) == ([1], "memory", 1)
        assert (await told(client, "load_session_context"))["persistence"] == "memory"
        await refused(client, "session_store", action="save", namespace="b", key="j", data=[2])
        cleared = await client.call_tool("session_store", {"action": "delete", "namespace": "a", "confirm": True})
        assert "a is deleted in memory only" in str(cleared.content[0])
        monkeypatch.undo()
        assert (await told(client, "session_store", action="save", namespace="b", key="k", data=1))["bytes"]
        assert (await told(client, "session_store", action="list"))["namespaces"] == {"b": 2}


@pytest.mark.requirement("GASOLINE-LIFE-CONTEXT")
async def test_loading_the_context_activates_noise_rules(project: Path) -> None:
    async with connected(project) as (client, memory):
        rules = {"rules": [{"pattern": "favicon", "auto": True}, "ResizeObserver"]}
        await told(client, "session_store", action="save", namespace="noise", key="config", data=rules)
        context = await told(client, "load_session_context")
        assert context["noise_config"]["rules_count"] == 2
        assert memory.noise_rule("GET /favicon.ico 404") is not None


async def test_listing_all_namespaces_counts_what_they_hold(project: Path) -> None:
    async with connected(project) as (client, _):
        await told(client, "session_store", action="save", namespace="errors", data=["one", "two"])
        await told(client, "session_store", action="save", namespace="notes", key="k", data=[1, 2])
        await told(client, "session_store", action="save", namespace="global", key="style", data={"indent": 2})
        listed = await told(client, "session_store", action="list")
        assert listed["namespaces"] == {"errors": 2, "notes": 1, "global": 1}


@pytest.mark.parametrize("damage", ["{oops", '{"session_count": "four"}', None])
async def test_lost_session_count_is_continued_from_what_is_stored(project: Path, damage: str | None) -> None:
    for _ in range(3):
        async with connected(project) as (client, _memory):
            await told(client, "record_error", error="TypeError: x at app.js:42")
            await told(client, "observe_endpoint", endpoint="GET /users", ms=100)
    meta = project / ".asnap/meta.json"
    meta.unlink() if damage is None else meta.write_text(damage)
    async with connected(project) as (client, _memory):
        assert (await told(client, "load_session_context"))["session_count"] == 4
        slow = await told(client, "observe_endpoint", endpoint="GET /users", ms=500)
        assert "was 100 ms, now 500 ms: DEGRADED" in slow["understood"][1]
        fixed = await told(client, "record_error", fingerprint="TypeError_app.js:42", resolved=True)
        assert "resolved after 4 sessions" in fixed["understood"][0]


async def test_clock_that_was_set_back_loses_nothing(project: Path) -> None:
    clock = FixedClock(datetime(2027, 1, 1, tzinfo=UTC))
    async with connected(project, clock=clock) as (client, _):
        await told(client, "record_error", error="TypeError: x at app.js:42")
        await told(client, "observe_endpoint", endpoint="GET /users", ms=100)
    clock.advance(timedelta(days=-45))
    async with connected(project, clock=clock) as (client, _):
        context = await told(client, "load_session_context")
        assert context["error_history"]["unresolved_count"] == 1
        slow = await told(client, "observe_endpoint", endpoint="GET /users", ms=500)
        assert "DEGRADED" in slow["understood"][1]
        again = await told(client, "record_error", error="TypeError: x at app.js:42")
        assert "2 occurrences" in again["understood"][0]
        fixed = await told(client, "record_error", fingerprint="TypeError_app.js:42", resolved=True)
        assert "resolved after 2 sessions" in fixed["understood"][0]
    async with connected(project, clock=clock) as (client, _):
        context = await told(client, "load_session_context")
        assert context["last_session"].startswith("2026-11-17")
        assert context["error_history"]["unresolved"] == []


async def test_clock_that_is_a_month_ahead_for_a_day_removes_nothing(project: Path) -> None:
    clock = FixedClock(datetime(2026, 11, 18, tzinfo=UTC))

    async def session(days: float) -> dict[str, Any]:
        clock.advance(timedelta(days=days))
        async with connected(project, clock=clock) as (client, _):
            await told(client, "observe_endpoint", endpoint="GET /other", ms=1)
            return await told(client, "load_session_context")

    async with connected(project, clock=clock) as (client, _):
        await told(client, "record_error", error="TypeError: x at app.js:42")
    for days, listed in ((1, 1), (45, 0), (0.1, 0), (-45, 1), (31, 0), (1, 0)):
        assert len((await session(days))["error_history"]["unresolved"]) == listed
    assert "TypeError" not in (project / ".asnap/errors/history.json").read_text(), "a second day confirms it"
