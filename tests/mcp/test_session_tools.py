"""The tools over the snapshot store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.manager.ports import adapt
from snapshot_plugin.model.content import TextBlock, ToolCallBlock
from snapshot_plugin.model.snapshot import AgentInfo, McpServer, Message, SessionConfig, SessionSnapshot
from snapshot_plugin.store.filesystem import FilesystemStore
from snapshot_plugin.store.memory import MemoryStore
from snapshot_plugin.testing.build import make_snapshot
from tests.mcp.servers import code_of, connected, refused, told
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio


def interrupted(project: Path) -> SessionSnapshot:
    call = ToolCallBlock(tool_call_id="t1", title="Run the tests", status="in_progress")
    return make_snapshot("please fix the login", session_id="fix-login").evolve(
        title="Fix the login",
        agent=AgentInfo(name="opencode", command=("opencode", "acp")),
        config=SessionConfig(
            cwd=str(project / "src"), mode="code", model="m-1", mcp_servers=(McpServer(name="asnap"),)
        ),
        messages=(
            Message(role="user", content="please fix the LOGIN page"),
            Message(role="assistant", content=(TextBlock(text="Looking."), call)),
        ),
    )


@pytest.mark.requirement(
    "TERMINAL-USE-REVIEW", "TERMINAL-SEARCH-TEXT", "TERMINAL-PERF-PAGES", "TERMINAL-FEATURE-SHOW"
)
async def test_sessions_are_listed_searched_and_shown(project: Path) -> None:
    store = MemoryStore()
    await store.save(interrupted(project))
    await store.save(make_snapshot("hello", "world " * 2000, session_id="other"))
    async with connected(project, store) as (client, _):
        listed = await told(client, "list_snapshots")
        assert ([line["session_id"] for line in listed["sessions"]], listed["hidden"]) == (["fix-login"], 1)
        found = await told(client, "search_sessions", query="login page")
        [hit] = found["hits"]
        assert (hit["session_id"], hit["message_index"], found["sessions_searched"]) == ("fix-login", 0, 1)
        assert hit["excerpt"] == "please fix the LOGIN page"
        [tool_hit] = (await told(client, "search_sessions", query="run the TESTS"))["hits"]
        assert tool_hit["role"] == "assistant"
        shown = await told(client, "show_session", session_id="fix-login")
        assert [message["text"] for message in shown["messages"]] == [
            "please fix the LOGIN page",
            "Looking.\n[tool in_progress] Run the tests",
        ]
    async with connected(project, store, all_projects=True) as (client, _):
        assert len((await told(client, "list_snapshots"))["sessions"]) == 2
        [long] = (await told(client, "show_session", session_id="other", limit=1))["messages"]
        assert (long["index"], long["shortened"]) == (1, True)
        [first] = (await told(client, "show_session", session_id="other", start=0, limit=1))["messages"]
        assert first["text"] == "hello"


SECRET = "ghp_" + "a1B2" * 10


def elsewhere(session_id: str, cwd: Path | None, text: str = "the needle") -> SessionSnapshot:
    return make_snapshot(text, session_id=session_id).evolve(
        config=SessionConfig(cwd=None if cwd is None else str(cwd))
    )


async def test_sessions_of_other_projects_are_not_listed_found_or_shown(project: Path) -> None:
    store = MemoryStore()
    beside = project.with_name(f"{project.name}-2")
    await store.save(elsewhere("ours", project / "src"))
    for name, cwd in (("beside", beside), ("above", project.parent), ("nowhere", None)):
        await store.save(elsewhere(name, cwd))
    async with connected(project, store) as (client, _):
        assert [line["session_id"] for line in (await told(client, "list_snapshots"))["sessions"]] == ["ours"]
        hits = (await told(client, "search_sessions", query="needle"))["hits"]
        assert {hit["session_id"] for hit in hits} == {"ours"}
        for name in ("beside", "above", "nowhere"):
            assert await refused(client, "show_session", session_id=name) == "snapshot_not_found"
    async with connected(project, store, all_projects=True) as (client, _):
        assert len((await told(client, "list_snapshots"))["sessions"]) == 4


async def test_parts_of_other_sessions_are_not_listed_or_found(project: Path) -> None:
    store = MemoryStore()
    await store.save(elsewhere("ours", project))
    await store.save(elsewhere("ours+memory", project))
    async with connected(project, store) as (client, _):
        assert [line["session_id"] for line in (await told(client, "list_snapshots"))["sessions"]] == ["ours"]
        found = await told(client, "search_sessions", query="needle")
        assert {hit["session_id"] for hit in found["hits"]} == {"ours"}


async def test_project_entered_through_a_symlink_sees_only_its_own_sessions(tmp_path: Path) -> None:
    real, other = tmp_path / "real", tmp_path / "other"
    real.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(real)
    (real / "out").symlink_to(other)
    store = MemoryStore()
    await store.save(elsewhere("through-the-link", tmp_path / "link" / "src"))
    await store.save(elsewhere("of-the-other", other))
    await store.save(elsewhere("out-of-the-project", real / "out"))
    for entered in (real, tmp_path / "link"):
        async with connected(entered, store) as (client, _):
            listed = (await told(client, "list_snapshots"))["sessions"]
            assert [line["session_id"] for line in listed] == ["through-the-link"]
            found = await told(client, "search_sessions", query="needle")
            assert {hit["session_id"] for hit in found["hits"]} == {"through-the-link"}
            await told(client, "show_session", session_id="through-the-link")
            for hidden in ("of-the-other", "out-of-the-project"):
                assert await refused(client, "show_session", session_id=hidden) == "snapshot_not_found"


async def test_session_tools_redact_secrets(project: Path) -> None:
    store = MemoryStore()
    said = "x" * 3980 + f" {SECRET} needle"  # 19 characters of it come before the end of a shortened message
    snapshot = elsewhere("s", project, said).evolve(
        title=f"use {SECRET}", agent=AgentInfo(name="a", command=("agent", f"--token={SECRET}"))
    )
    await store.save(snapshot)
    async with connected(project, store) as (client, _):
        for tool, arguments in (
            ("list_snapshots", {}),
            ("search_sessions", {"query": "needle"}),
            ("show_session", {"session_id": "s"}),
        ):
            answer = json.dumps(await told(client, tool, **arguments))
            assert SECRET[:12] not in answer
            assert "[redacted" in answer


async def test_unknown_session_is_reported(project: Path) -> None:
    async with connected(project) as (client, _):
        assert await refused(client, "show_session", session_id="nobody") == "snapshot_not_found"
        assert await refused(client, "search_sessions", query=" ") == "invalid_input"
        too_many = await client.call_tool("list_snapshots", {"limit": 100_000})
        assert too_many.is_error


async def test_refusal_suggests_only_what_a_model_can_do(project: Path) -> None:
    async with connected(project) as (client, _):
        result = await client.call_tool("show_session", {"session_id": "no-such-session"})
        assert "list_snapshots" in dict(result.meta or {})["asnap/error"]["hint"]
    locked = FilesystemStore(project.parent / "locked", key="correct horse")
    await locked.save(make_snapshot("hello", session_id="s"))
    async with connected(project, FilesystemStore(project.parent / "locked")) as (client, _):
        result = await client.call_tool("show_session", {"session_id": "s"})
        assert (code_of(result), "ask the user" in str(result.content)) == ("key_missing", True)


async def test_missing_store_reads_as_empty_and_is_not_created(project: Path) -> None:
    place = project.parent / "store"
    async with connected(project, FilesystemStore(place, create=False)) as (client, _):
        listed = await told(client, "list_snapshots")
        assert (listed["sessions"], len(listed["notices"])) == ([], 1)
        assert await refused(client, "show_session", session_id="s") == "store_not_found"
    assert not place.exists()


async def test_live_session_is_marked(project: Path) -> None:
    session = adapt(interrupted(project), lambda live: live)
    async with FilesystemStore(project.parent / "store") as store, SnapshotManager(store) as manager:
        await manager.snapshot(session)
        await manager.start_auto_snapshot(session, 3600)
        async with connected(project, store) as (client, _):
            [line] = (await told(client, "list_snapshots"))["sessions"]
    assert line["live"] is True
