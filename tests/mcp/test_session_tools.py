"""The tools over the snapshot store, and the resources."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import TextResourceContents

from snapshot_plugin import FilesystemStore, MemoryStore, Message, SessionSnapshot, SnapshotManager
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.manager.control import serve_control
from snapshot_plugin.manager.ports import adapt
from snapshot_plugin.model import AgentInfo, McpServer, SessionConfig, TextBlock, ToolCallBlock, new_id
from snapshot_plugin.testing import make_snapshot
from tests import forkserver
from tests.mcp.servers import code_of, connected, environment, refused, told
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
            for tool in ("show_session", "resume_plan", "take_snapshot"):
                assert await refused(client, tool, session_id=name) == "snapshot_not_found"
            with pytest.raises(MCPError):
                await client.read_resource(f"asnap://sessions/{name}")
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
            ("resume_plan", {"session_id": "s"}),
        ):
            answer = json.dumps(await told(client, tool, **arguments))
            assert SECRET[:12] not in answer
            assert "[redacted" in answer or "<withheld>" in answer  # commands are stored without secrets


async def test_resume_plan_describes_what_would_happen(project: Path) -> None:
    store = MemoryStore()
    await store.save(interrupted(project))
    async with connected(project, store) as (client, _):
        plan = await told(client, "resume_plan")
    assert (plan["session_id"], plan["seq"], plan["agent"], plan["mode"]) == ("fix-login", 1, "opencode", "code")
    assert plan["command"] == "asnap run --session fix-login -- opencode acp"
    assert plan["mcp_servers"] == ["asnap"]
    assert len(plan["repairs"]) == 1
    assert plan["live"] is False
    assert plan["steps"]


@pytest.mark.requirement("TRUST-MARKED")
async def test_resume_plan_marks_a_command_that_came_with_an_import(project: Path) -> None:
    def asnap(*words: str | Path) -> None:
        line = [sys.executable, "-m", "snapshot_plugin", *map(str, words)]
        done = forkserver.run(line, env={**environment(project), "PATH": os.environ["PATH"]}, timeout=60)
        assert done.returncode == 0, done.stderr

    file, place = project.parent / "fix-login.asnap", project.parent / "store"
    async with FilesystemStore(project.parent / "theirs") as theirs:
        await theirs.save(interrupted(project))
    asnap("export", "fix-login", "-o", file, "--store", project.parent / "theirs")
    asnap("import", file)

    async with connected(project, FilesystemStore(place)) as (client, _):
        plan = await told(client, "resume_plan")
    assert plan["confirmed"] is False
    assert plan["steps"][0].startswith("ask the user")

    async with connected(project, FilesystemStore(project.parent / "theirs")) as (client, _):
        own = await told(client, "resume_plan")
    assert (own["confirmed"], own["steps"]) == (True, plan["steps"][1:])


async def test_unknown_session_is_reported(project: Path) -> None:
    async with connected(project) as (client, _):
        for tool in ("show_session", "resume_plan", "take_snapshot"):
            assert await refused(client, tool, session_id="nobody") == "snapshot_not_found"
        assert await refused(client, "resume_plan") == "not_found"
        assert await refused(client, "take_snapshot") == "not_found"
        assert await refused(client, "search_sessions", query=" ") == "invalid_input"
        too_many = await client.call_tool("list_snapshots", {"limit": 100_000})
        assert too_many.is_error


@pytest.mark.parametrize("tool", ["show_session", "resume_plan"])
async def test_refusal_suggests_only_what_a_model_can_do(project: Path, tool: str) -> None:
    async with connected(project) as (client, _):
        result = await client.call_tool(tool, {"session_id": "no-such-session"})
        assert "list_snapshots" in dict(result.meta or {})["asnap/error"]["hint"]
    locked = FilesystemStore(project.parent / "locked", key="correct horse")
    await locked.save(make_snapshot("hello", session_id="s"))
    async with connected(project, FilesystemStore(project.parent / "locked")) as (client, _):
        result = await client.call_tool(tool, {"session_id": "s"})
        assert (code_of(result), "ask the user" in str(result.content)) == ("key_missing", True)


async def test_missing_store_reads_as_empty_and_is_not_created(project: Path) -> None:
    place = project.parent / "store"
    async with connected(project, FilesystemStore(place, create=False)) as (client, _):
        listed = await told(client, "list_snapshots")
        assert (listed["sessions"], len(listed["notices"])) == ([], 1)
        assert await refused(client, "show_session", session_id="s") == "store_not_found"
    assert not place.exists()


async def _take(client: Client, store: FilesystemStore, handler: Any, project: Path) -> dict[str, Any] | str:
    """Be the owner of session fix-login while the client asks for a snapshot."""
    async with anyio.create_task_group() as tasks:
        path = await tasks.start(
            lambda *, task_status: serve_control(handler, name=new_id(), task_status=task_status)
        )
        owner = Owner.this_process(since=datetime.now(UTC), control=str(path))
        lease = Lease.acquire(store.session_dir("fix-login"), owner)
        try:
            result = await client.call_tool("take_snapshot", {"tag": "before-lunch"})
            assert (await told(client, "resume_plan"))["live"] is True
        finally:
            lease.release()
            tasks.cancel_scope.cancel()
    if result.is_error:
        return code_of(result)
    return dict(result.structured_content or {})


async def test_snapshot_is_taken_by_the_sessions_owner(project: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def save(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        ref = await store.save(interrupted(project), tags=[request["tag"]])
        return {"session_id": ref.session_id, "status": "saved", "seq": ref.seq}

    async with FilesystemStore(project.parent / "store") as store, connected(project, store) as (client, _):
        await store.save(interrupted(project))
        assert await refused(client, "take_snapshot", session_id="fix-login") == "not_found"
        taken = await _take(client, store, save, project)
        assert asked == [{"op": "snapshot", "session_id": "fix-login", "tag": "before-lunch"}]
        assert isinstance(taken, dict)
        assert (taken["session_id"], taken["seq"]) == ("fix-login", 2)
        assert (await store.history("fix-login"))[0].snapshot_tags == ("before-lunch",)


async def test_snapshot_of_a_managed_session_is_taken(project: Path) -> None:
    state = interrupted(project)
    session = adapt(state, lambda live: live.append(Message(role="user", content="and now?")))
    async with FilesystemStore(project.parent / "store") as store, SnapshotManager(store) as manager:
        await manager.snapshot(adapt(state, lambda live: live))
        await manager.start_auto_snapshot(session, 3600)
        async with connected(project, store) as (client, _):
            [line] = (await told(client, "list_snapshots"))["sessions"]
            assert line["live"] is True
            taken = await told(client, "take_snapshot", tag="asked")
            assert taken["owner_pid"] == os.getpid()
            newest = (await store.history("fix-login"))[0]
            assert (newest.seq, newest.snapshot_tags) == (taken["seq"], ("asked",))
            assert (await told(client, "show_session", session_id="fix-login"))["total_messages"] == 3


async def test_owner_that_cannot_save_is_not_reported_as_saved(project: Path) -> None:
    async def fail(_request: dict[str, Any]) -> dict[str, Any]:
        return {"session_id": "fix-login", "status": "failed", "problem": "disk full"}

    async with FilesystemStore(project.parent / "store") as store, connected(project, store) as (client, _):
        await store.save(interrupted(project))
        assert await _take(client, store, fail, project) == "failure"


async def _read(client: Client, uri: str) -> Any:
    [content] = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert content.mime_type == "application/json"
    return json.loads(content.text)


async def test_resources_give_the_same_as_the_tools(project: Path) -> None:
    store = MemoryStore()
    await store.save(interrupted(project))
    async with connected(project, store) as (client, memory):
        await memory.save("decisions", "A b/c", {"x": 1})
        assert {str(r.uri) for r in (await client.list_resources()).resources} == {
            "asnap://memory/context",
            "asnap://sessions",
        }
        assert len((await client.list_resource_templates()).resource_templates) == 4
        assert (await _read(client, "asnap://memory/context"))["session_count"] == 1
        assert await _read(client, "asnap://memory/decisions") == ["A b/c"]
        assert await _read(client, "asnap://memory/decisions/A%20b%2Fc") == {"x": 1}
        assert len((await _read(client, "asnap://sessions"))["sessions"]) == 1
        assert (await _read(client, "asnap://sessions/fix-login"))["total_messages"] == 2
        assert (await _read(client, "asnap://sessions/fix-login/plan"))["seq"] == 1
        for missing in ("asnap://memory/a/b", "asnap://sessions/nobody", "asnap://memory/%2e%2e/x"):
            with pytest.raises(MCPError) as error:
                await client.read_resource(missing)
            assert error.value.error.code == -32602
