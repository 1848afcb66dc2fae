"""Several agents on one project, each with a server of its own, as real processes."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from snapshot_plugin.memory import engine
from snapshot_plugin.system.files import locked
from tests.mcp.servers import command, connected, refused, servers_in, told

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@asynccontextmanager
async def agents(project: Path, count: int) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Client(command(project))) for _ in range(count)]


async def save(client: Client, key: str) -> str:
    answer = await told(client, "session_store", action="save", namespace="notes", key=key, data=key)
    return str(answer["persistence"])


def kept(project: Path) -> set[str]:
    return {file.stem for file in (project / ".asnap/notes").glob("*.json")}


@pytest.mark.requirement("GASOLINE-SECURITY-SECOND", "GASOLINE-P-EDGE-LOCK")
async def test_three_agents_with_five_saves_each_keep_fifteen_entries(project: Path) -> None:
    async def work(client: Client, name: str) -> None:
        for n in range(5):
            assert await save(client, f"{name}{n}") == "disk"
            await told(client, "record_error", fingerprint="shared")

    async with agents(project, 3) as clients:
        async with anyio.create_task_group() as tasks:
            for name, client in zip("abc", clients, strict=True):
                tasks.start_soon(work, client, name)
        context = await told(clients[2], "load_session_context")
        assert context["error_history"]["unresolved"][0]["occurrences"] == 15
        assert context["session_count"] == 3
        assert kept(project) == {f"{name}{n}" for name in "abc" for n in range(5)}


async def test_nothing_acknowledged_is_lost_when_a_process_is_killed_while_it_writes(project: Path) -> None:
    acknowledged: set[str] = set()
    is_writing = anyio.Event()

    async def work(client: Client, name: str, victim: int | None = None) -> None:
        for n in range(6):
            assert await save(client, f"{name}{n}") == "disk"
            acknowledged.add(f"{name}{n}")
            if victim and n == 2:
                await is_writing.wait()
                os.kill(victim, signal.SIGKILL)

    async def work_until_killed(client: Client) -> None:
        with contextlib.suppress(Exception):  # its server dies
            for n in range(1000):
                await save(client, f"w{n}")
                acknowledged.add(f"w{n}")
                is_writing.set()

    async with agents(project, 1) as [killed]:
        [victim] = servers_in(project)
        async with agents(project, 2) as others:
            assert await save(killed, "w") == "disk"
            async with anyio.create_task_group() as whole:
                whole.start_soon(work_until_killed, killed)
                async with anyio.create_task_group() as tasks:
                    for name, client, kill in zip("ab", others, (victim, None), strict=True):
                        tasks.start_soon(work, client, name, kill)
                whole.cancel_scope.cancel()
            assert await save(others[0], "last") == "disk"
    assert acknowledged > {f"{name}{n}" for name in "ab" for n in range(6)}
    assert kept(project) >= acknowledged | {"w", "last"}


async def test_save_is_kept_while_another_process_holds_the_lock_and_is_delivered_later(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_TIMEOUT", 0.1)
    async with connected(project) as (client, _):
        assert await save(client, "w") == "disk"
        with locked(project / ".asnap/.lease", session_id="", timeout=1):
            code = await refused(client, "session_store", action="save", namespace="notes", key="o", data=1)
            assert code == "read_only"
            loaded = await told(client, "session_store", action="load", namespace="notes", key="o")
            assert (loaded["data"], loaded["persistence"]) == (1, "read-only"), "what was kept can be read"
            assert "another process is writing" in loaded["notices"][0]
            assert kept(project) == {"w"}
        assert await save(client, "later") == "disk"
        assert kept(project) == {"w", "o", "later"}


async def test_stopped_process_blocks_no_other(project: Path) -> None:
    async with agents(project, 1) as [first]:
        assert await save(first, "w") == "disk"
        [pid] = servers_in(project)
        os.kill(pid, signal.SIGSTOP)
        try:
            async with connected(project) as (other, _):
                assert await save(other, "o") == "disk"
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_idle_process_blocks_no_other_and_listing_tools_starts_no_session(project: Path) -> None:
    async with agents(project, 2) as (idle, busy):
        await idle.list_tools()
        assert not (project / ".asnap").exists()
        context = await told(busy, "load_session_context")
        assert (context["session_count"], await save(busy, "b")) == (1, "disk")
        assert (await told(idle, "load_session_context"))["session_count"] == 2


async def test_each_agent_sees_the_changes_and_refusals_of_its_own_calls(project: Path) -> None:
    async with connected(project) as (first, _), connected(project) as (second, _):
        await told(first, "session_store", action="save", namespace="a", key="k", data=1)
        assert await refused(second, "session_store", action="delete", namespace="a", key="nobody") == "not_found"
        taught = await told(second, "session_store", action="save", namespace="errors", data="TypeError at a.js:1")
        assert taught["understood"] == ["error 'TypeError_a.js:1': new"]
        await told(second, "session_store", action="delete", namespace="*", confirm=True)
        assert await refused(first, "session_store", action="load", namespace="a", key="k") == "not_found"


@pytest.mark.parametrize("seconds", ["nan", "1e400", -1])
async def test_value_that_cannot_be_stored_does_not_block_the_writer(project: Path, seconds: Any) -> None:
    timing = {"action": "save", "namespace": "performance", "data": {"endpoint": "GET /", "seconds": seconds}}
    async with connected(project) as (first, _), connected(project) as (second, _):
        await told(first, "session_store", action="save", namespace="a", key="k", data=1)
        assert await refused(second, "session_store", **timing) == "invalid_input"
        saved = await told(first, "session_store", action="save", namespace="a", key="k", data=2)
        assert saved["persistence"] == "disk"


async def test_save_succeeds_after_a_full_disk_was_freed(project: Path) -> None:
    async with agents(project, 1) as [client]:
        assert await save(client, "before") == "disk"
        [pid] = servers_in(project)
        _, most = resource.prlimit(
            pid, resource.RLIMIT_FSIZE, (8, resource.RLIM_INFINITY)
        )  # no file may grow: as full
        code = await refused(client, "session_store", action="save", namespace="notes", key="kept", data="x" * 100)
        assert code == "store_unavailable"
        loaded = await told(client, "session_store", action="load", namespace="notes", key="kept")
        assert (loaded["data"], loaded["persistence"], len(loaded["notices"])) == ("x" * 100, "memory", 1)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
        answer = await told(client, "session_store", action="save", namespace="notes", key="after", data=1)
        assert (answer["persistence"], answer["notices"]) == ("disk", [])
        assert kept(project) == {"before", "kept", "after"}
