"""The real command, over standard input and output, and over HTTP with a token."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ListRootsResult, Root

from snapshot_plugin import InvalidInput, MemoryStore
from snapshot_plugin.memory import literal_project
from snapshot_plugin.memory.server.serve import MemoryServer, http_app
from snapshot_plugin.memory.server.tools import ServedProject
from tests import forkserver
from tests.mcp.servers import command, environment, refused, told, work_in

TOKEN = "t0ken-" * 6


@pytest.mark.anyio
async def test_memory_stored_over_stdio_is_found_by_the_next_process(project: Path) -> None:
    with anyio.fail_after(60):
        async with Client(command(project)) as client:
            await told(client, "session_store", action="save", namespace="decisions", key="db", data={"x": "ß"})
        async with Client(command(project)) as client:
            context = await told(client, "load_session_context")
            assert (context["session_count"], context["other_namespaces"]) == (2, {"decisions": ["db"]})
            loaded = await told(client, "session_store", action="load", namespace="decisions", key="db")
            assert loaded["data"] == {"x": "ß"}


def test_a_request_with_half_a_character_is_refused_over_stdio_and_the_next_one_is_served(project: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    half = {
        "name": "session_store",
        "arguments": {"action": "save", "namespace": "a", "key": "k", "data": "\ud800"},
    }
    asked = [("initialize", hello), ("tools/call", half), ("tools/list", {})]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(asked)
    ]
    with forkserver.Popen(
        [sys.executable, "-m", "snapshot_plugin", "mcp"],
        cwd=project,
        env={**os.environ, **environment(project)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers, late = [], threading.Timer(60, process.kill)
        late.start()
        for line in lines:
            process.stdin.write(f"{line}\n\n")
            process.stdin.flush()
            answers.append(json.loads(process.stdout.readline() or "{}"))
        late.cancel()
        process.stdin.close()
        assert process.wait(30) == 0
    assert [answer["id"] for answer in answers] == [0, 1, 2]
    assert answers[1]["error"]["code"] == -32700
    assert "cannot be read" in answers[1]["error"]["message"]
    assert "result" in answers[2]


@contextmanager
def serving(project: Path, **environ: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """``asnap mcp --http 0``: the process, its address, and the token it announced, if any."""
    process = forkserver.Popen(
        [sys.executable, "-m", "snapshot_plugin", "mcp", "--http", "0"],
        cwd=project,
        env={**os.environ, **environment(project, **environ)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = ""
        while "listening on" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        [address] = re.findall(r"http://\S+", said)
        yield process, address, "".join(re.findall(r"token: (\S+)", said))
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.anyio
async def test_http_with_the_token_is_served(project: Path) -> None:
    with serving(project, ASNAP_MCP_TOKEN=TOKEN) as (process, address, announced), anyio.fail_after(60):
        assert (announced, address.startswith("http://127.0.0.1:")) == ("", True)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            for _ in range(2):  # two clients, one memory
                async with Client(streamable_http_client(address, http_client=http)) as client:
                    await told(client, "session_store", action="save", namespace="a", key="k", data=1)
                    assert (await told(client, "load_session_context"))["session_count"] == 1
        process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(process.wait, 30) in (0, -signal.SIGTERM)


def test_http_without_the_token_is_refused(project: Path) -> None:
    with serving(project) as (_, address, token):
        assert len(token) > 30
        good = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        with httpx2.Client(timeout=60) as http:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": token}):
                assert http.post(address, json=message, headers=headers).status_code == 401
                assert http.get(address, headers=headers).status_code == 401
            assert http.post(address, json=message, headers=good).status_code != 401
            for name, code in (("Host", 421), ("Origin", 403)):
                foreign = {**good, name: "evil.example" if name == "Host" else "http://evil.example"}
                assert http.post(address, json=message, headers=foreign).status_code == code


def test_a_short_token_is_refused(project: Path) -> None:
    server = MemoryServer(ServedProject(literal_project(project), MemoryStore(), work_in(project)))
    with pytest.raises(InvalidInput):
        http_app(server, token="short")


def test_taken_port_and_short_token_are_usage_errors(project: Path) -> None:
    with serving(project, ASNAP_MCP_TOKEN=TOKEN) as (_, address, _announced):
        port = address.rsplit(":", 1)[1].split("/")[0]
        for number, token in ((port, TOKEN), ("0", "short")):
            done = forkserver.run(
                [sys.executable, "-m", "snapshot_plugin", "mcp", "--http", number],
                cwd=project,
                env={**os.environ, **environment(project, ASNAP_MCP_TOKEN=token)},
                timeout=60,
            )
            assert done.returncode == 2
            assert b"Traceback" not in done.stderr


@pytest.mark.requirement("GASOLINE-P-BOOT-LOG")
def test_server_exits_when_the_client_hangs_up(project: Path) -> None:
    ended = forkserver.run(
        [sys.executable, "-m", "snapshot_plugin", "mcp"],
        cwd=project,
        env={**os.environ, **environment(project)},
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert ended.stderr.decode() == (
        f"asnap mcp: project {project} (the working directory). "
        "Loaded session context: 0 baselines, 0 noise rules, 0 endpoints\n"
    )
    assert not (project / ".asnap").exists(), "nobody used it"


@pytest.mark.requirement("GASOLINE-P-WRITE-SHUTDOWN")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_after_everything_is_written(project: Path, number: signal.Signals) -> None:
    process = forkserver.Popen(
        [sys.executable, "-m", "tests.run_code", _SERVE_AND_RECORD, str(project)],
        env={**os.environ, **environment(project)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "recorded\n"
        process.send_signal(number)
        assert process.wait(30) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate(timeout=30)
    [entry] = json.loads((project / ".asnap/errors/history.json").read_text())["entries"]
    assert entry["fingerprint"] == "buffered"


_SERVE_AND_RECORD = """
import signal
import sys
from pathlib import Path
import anyio
from snapshot_plugin.memory import literal_project
from snapshot_plugin.memory.server.tools import ServedProject
from snapshot_plugin.memory.server.serve import MemoryServer, serve_stdio
from snapshot_plugin.store.memory import MemoryStore
from tests.mcp.servers import work_in

async def main():
    project = ServedProject(literal_project(sys.argv[1]), MemoryStore(), work_in(Path(sys.argv[1])))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_stdio, MemoryServer(project))
        with anyio.fail_after(30):
            while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                await anyio.sleep(0.01)
            await (await project.memory()).record_error("buffered")
        print("recorded", file=sys.stderr, flush=True)

anyio.run(main)
"""


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_clients_root_is_the_project_unless_one_is_named(project: Path, mode: str) -> None:
    root = project.parent / "root of the client"
    root.mkdir()

    async def roots(context: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=root.as_uri())])

    async with Client(command(project), mode=mode, list_roots_callback=roots) as client:
        assert (await told(client, "load_session_context"))["project"] == str(root)
    named = command(project, None, "--project", str(project))
    async with Client(named, mode=mode, list_roots_callback=roots) as client:
        assert (await told(client, "load_session_context"))["project"] == str(project)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_tools_in_the_home_directory_report_no_project(project: Path) -> None:
    environ = environment(project, HOME=str(project))
    async with Client(command(project, environ)) as client:
        assert len((await client.list_tools()).tools) > 5
        assert await refused(client, "load_session_context") == "invalid_input"
        assert await refused(client, "list_snapshots") == "invalid_input"
    assert not (project / ".asnap").exists()
    async with Client(command(project, environ, "--project", str(project))) as client:
        assert (await told(client, "load_session_context"))["session_count"] == 1


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_resolution_as_a_sessions_first_call_counts_that_session(project: Path) -> None:
    async with Client(command(project)) as client:
        await told(client, "record_error", fingerprint="E")
    async with Client(command(project)) as client:
        receipt = await told(client, "record_error", fingerprint="E", resolved="true")
        assert receipt["understood"] == ["error 'E': resolved after 2 sessions"]
