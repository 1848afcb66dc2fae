"""The eighteen scenarios of the specification, by a client that has only the tools, on stdio and over HTTP.

`tests/memory/test_scenarios.py` has each of them in detail, for programs.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.mcp.servers import code_of, command, servers_in, told
from tests.mcp.test_transports import TOKEN, serving

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

Session = Callable[[Path], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def on_stdio(project: Path) -> AsyncIterator[Client]:
    async with Client(command(project)) as client:
        yield client


@asynccontextmanager
async def over_http(project: Path) -> AsyncIterator[Client]:
    with serving(project, ASNAP_MCP_TOKEN=TOKEN) as (process, address, _):
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            yield client
        process.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(process.wait, 60)


async def store(
    client: Client, action: str, namespace: str | None = None, key: str | None = None, **more: Any
) -> Any:
    named = {"namespace": namespace, "key": key}
    given = {name: value for name, value in named.items() if value is not None}
    return await told(client, "session_store", action=action, **given, **more)


async def code(client: Client, **arguments: Any) -> str:
    return code_of(await client.call_tool("session_store", arguments))


@pytest.mark.parametrize("session", [on_stdio, over_http], ids=["stdio", "http"])
@pytest.mark.requirement(
    "GASOLINE-TEST-01",
    "GASOLINE-TEST-02",
    "GASOLINE-TEST-03",
    "GASOLINE-TEST-04",
    "GASOLINE-TEST-05",
    "GASOLINE-TEST-06",
    "GASOLINE-TEST-07",
    "GASOLINE-TEST-08",
    "GASOLINE-TEST-09",
    "GASOLINE-TEST-10",
    "GASOLINE-TEST-11",
    "GASOLINE-TEST-12",
    "GASOLINE-TEST-13",
    "GASOLINE-TEST-14",
    "GASOLINE-TEST-15",
    "GASOLINE-TEST-16",
    "GASOLINE-TEST-17",
    "GASOLINE-TEST-18",
)
async def test_the_scenarios_of_the_specification(project: Path, session: Session) -> None:
    (project / ".gitignore").write_text("build\n")
    async with session(project) as client:
        await _first_session(client, project)
    await _restart(project, session)
    await _limits(project, session)


async def _first_session(client: Client, project: Path) -> None:
    context = await told(client, "load_session_context")  # 10: fresh
    assert (context["session_count"], context["last_session"], context["other_namespaces"]) == (1, None, {})
    assert (project / ".asnap/meta.json").is_file()  # 1
    assert (project / ".gitignore").read_text() == "build\n.asnap/\n"  # 2
    data = {"text": "ß", "list": [1, 2.5, None, True], "deep": {"a": {"b": []}}}
    await store(client, "save", "notes", "one", data=data)
    assert (await store(client, "load", "notes", "one"))["data"] == data  # 3
    assert await code(client, action="load", namespace="notes", key="nobody") == "not_found"  # 4
    await store(client, "save", "notes", "two", data=2)
    assert (await store(client, "list", "notes"))["keys"] == ["one", "two"]  # 5
    await store(client, "delete", "notes", "two")  # 6
    assert not (project / ".asnap/notes/two.json").exists()
    assert await code(client, action="load", namespace="notes", key="two") == "not_found"
    await store(client, "save", "baselines", "login", data={"status": 200})
    stats = (await store(client, "stats"))["stats"]  # 7
    files = [file for file in (project / ".asnap").glob("*/*.json") if not file.parent.name.startswith(".")]
    assert stats["total_size_bytes"] == sum(file.stat().st_size for file in files)
    assert {name: of["entries"] for name, of in stats["namespaces"].items()} == {"baselines": 1, "notes": 1}
    too_large = {"action": "save", "namespace": "notes", "key": "large", "data": "x" * (1024 * 1024 + 1)}
    assert await code(client, **too_large) == "limit_exceeded"  # 8
    await told(client, "set_noise", pattern="favicon", auto=True)
    assert "noise" in (await told(client, "record_error", error="GET /favicon.ico 404"))["understood"][0]  # 12
    await told(client, "record_error", error="TypeError: x is undefined at app.js:42")
    await told(client, "observe_endpoint", endpoint="GET /api/users", ms=150)
    await _at_once(client)  # 13
    assert json.loads((project / ".asnap/errors/history.json").read_text())[
        "entries"
    ]  # 14, 15: before the interval


async def _at_once(client: Client) -> None:
    versions = [{"version": n, "text": str(n) * 2000} for n in range(4)]

    async def write() -> None:
        for version in versions:
            await store(client, "save", "shared", "k", data=version)

    async def read() -> None:
        for _ in range(6):
            loaded = (await store(client, "load", "shared", "k"))["data"]
            assert loaded == versions[loaded["version"]]

    await store(client, "save", "shared", "k", data=versions[0])
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(write)
            tasks.start_soon(read)


async def _restart(project: Path, session: Session) -> None:
    before = datetime.now(UTC) - timedelta(minutes=10)
    async with session(project) as client:
        context = await told(client, "load_session_context")
        assert context["session_count"] == 2  # 9
        assert datetime.fromisoformat(context["last_session"]) > before
        assert context["baselines"]["names"] == ["login"]  # 11
        assert context["noise_config"] == {
            "rules_count": 1, "auto_detected": 1, "manual": 0, "entries_filtered_lifetime": 1
        }  # fmt: skip
        [error] = context["error_history"]["unresolved"]
        assert (error["fingerprint"], error["occurrences"]) == ("TypeError_app.js:42", 1)
        assert (
            context["api_schema"]["endpoints_known"] == context["performance_baselines"]["endpoints_tracked"] == 1
        )
        assert (
            "noise" in (await told(client, "record_error", error="favicon again"))["understood"][0]
        )  # 12: at once


async def _limits(project: Path, session: Session) -> None:
    old = (datetime.now(UTC) - timedelta(days=31)).isoformat()
    file = project / ".asnap/errors/history.json"
    entries = [
        {"fingerprint": "old", "first_seen": old, "last_seen": old},
        *({"fingerprint": f"E{n}"} for n in range(500)),
    ]
    file.write_text(json.dumps({"entries": entries}))
    async with session(project) as client:
        assert (await told(client, "load_session_context"))["error_history"]["unresolved_count"] == 500  # 18
        await told(client, "record_error", fingerprint="E500")  # 17
        kept = [entry["fingerprint"] for entry in json.loads(file.read_text())["entries"]]
        assert (len(kept), kept[0], kept[-1]) == (500, "E1", "E500")
        [pid] = servers_in(project)
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE, (8, resource.RLIM_INFINITY))
        assert (
            await code(client, action="save", namespace="notes", key="k", data="x" * 99) == "store_unavailable"
        )  # 16
        assert (await store(client, "load", "notes", "k"))["persistence"] == "memory"
        assert (await told(client, "load_session_context"))["session_count"] == 3
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
        os.kill(pid, 0)
