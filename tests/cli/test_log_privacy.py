"""Logs at INFO and above hold ids and kinds of errors, never what a model, an agent or its client wrote.

The agent here writes the canary wherever it can: chunks, titles, errors, stderr, lines that are no ACP.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

import snapshot_plugin
from snapshot_plugin import MemoryStore, SessionSnapshot, SnapshotManager
from snapshot_plugin.acp.hosts.sdk_client import record
from snapshot_plugin.acp.hosts.stdio_agent import StdioAgent
from tests.acp_sdk.orchestrator import Orchestrator, connected, new_session, prompt
from tests.manager.sessions import Chat, quick
from tests.mcp.servers import environment

CANARY = "canary-7f3a"
PATIENCE = 60.0
ROOT = Path(snapshot_plugin.__file__).parent.parent
AGENT = f"""
import json, sys
def send(message):
    print(json.dumps({{"jsonrpc": "2.0", **message}}), flush=True)
def update(session, **fields):
    send({{"method": "session/update", "params": {{"sessionId": session, "update": fields}}}})
print("{CANARY} on stderr", file=sys.stderr, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    method, params, number = request.get("method"), request.get("params") or {{}}, request.get("id")
    session = params.get("sessionId")
    if method == "initialize":
        print("{CANARY} is no ACP", flush=True)
        send({{"id": number, "result": {{"protocolVersion": 1, "agentCapabilities": {{"loadSession": True}}}}}})
    elif method == "session/new":
        send({{"id": number, "result": {{"sessionId": "s1"}}}})
    elif method == "session/prompt" and "die" in params["prompt"][0]["text"]:
        sys.exit("{CANARY} at the end")
    elif method == "session/prompt":
        text = {{"type": "text", "text": "{CANARY} says the model"}}
        update(session, sessionUpdate="agent_message_chunk", content=text)
        update(session, sessionUpdate="tool_call", toolCallId="1", title="{CANARY}", status="failed")
        update(session, sessionUpdate="{CANARY}", content=7)
        update(session, sessionUpdate="plan", entries="{CANARY}")
        send({{"method": "session/update", "params": "{CANARY}"}})
        send({{"id": 99, "method": "{CANARY}/ask", "params": {{}}}})
        send({{"id": number, "result": {{"stopReason": "end_turn"}}}})
    elif number is not None:
        send({{"id": number, "error": {{"code": -32603, "message": "{CANARY} refuses"}}}})
"""
LOUD = """
import logging, sys
class Loud(logging.Logger):
    def setLevel(self, level):
        super().setLevel(min(level, logging.INFO))
logging.setLoggerClass(Loud)
logging.basicConfig(filename=sys.argv.pop(1), level=logging.INFO)
from snapshot_plugin.__main__ import main
main()
"""
"""``asnap`` with every logger of the process at INFO, into a file."""


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What our own loggers were told that holds the canary; the SDKs have loggers of their own."""
    format_ = logging.Formatter("%(name)s %(message)s").format
    told = [format_(record) for record in caplog.records if record.name.startswith("snapshot_plugin")]
    return [line for line in told if CANARY in line]


@pytest.fixture
def agent(tmp_path: Path) -> list[str]:
    script = tmp_path / "agent.py"
    script.write_text(AGENT)
    return [sys.executable, str(script)]


def test_the_proxy_logs_nothing_an_agent_or_a_client_wrote(tmp_path: Path, agent: list[str]) -> None:
    log = tmp_path / "log"
    requests = [
        ("initialize", {"protocolVersion": 1, "clientCapabilities": {}}),
        ("session/new", {"cwd": str(tmp_path), "mcpServers": []}),
        ("session/prompt", {"sessionId": "s1", "prompt": [{"type": "text", "text": f"{CANARY} asks"}]}),
        ("session/prompt", {"sessionId": "s1", "prompt": f"{CANARY} is no list"}),
        (f"{CANARY}/method", {"sessionId": CANARY}),
        ("session/prompt", {"sessionId": "s1", "prompt": [{"type": "text", "text": "die"}]}),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(requests)
    ]
    command = [sys.executable, "-c", LOUD, str(log), "run", "--store", str(tmp_path / "store"), "--"]
    with subprocess.Popen(
        [*command, *agent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        for number, line in enumerate(lines):
            proxy.stdin.write(f"{line}\n".encode())
            proxy.stdin.flush()
            while json.loads(proxy.stdout.readline()).get("id") != number:
                pass
        proxy.communicate(timeout=PATIENCE)

    assert CANARY not in log.read_text()
    shown = subprocess.run(
        [*command[:4], "show", "--store", command[6], "s1"], capture_output=True, cwd=ROOT, check=True
    )
    assert f"{CANARY} says the model".encode() in shown.stdout


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_orchestrator_logs_nothing_an_agent_wrote(
    tmp_path: Path, agent: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with SnapshotManager(MemoryStore()) as manager:
        process = await StdioAgent.start(agent)
        connection = connected(Orchestrator(), process)
        try:
            record(connection, manager, command=agent)
            await connection.initialize(protocol_version=1)
            session_id = await new_session(connection, str(tmp_path))
            await prompt(connection, session_id, f"{CANARY} asks")
            with pytest.raises(Exception, match=CANARY):
                await connection.set_session_mode(session_id=session_id, mode_id=CANARY)
        finally:
            await connection.close()

    assert not ours(caplog)


class Broken(Chat):
    """A session of an embedding program whose state cannot be read."""

    def snapshot(self) -> SessionSnapshot:
        raise ValueError(f"{CANARY} cannot be read")


@pytest.mark.anyio
async def test_a_manager_logs_nothing_a_session_holds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with SnapshotManager(MemoryStore(), quick()) as manager:
        await manager.snapshot(Chat("s", f"{CANARY} was said"))
        await manager.restore("s")
        await manager.start_auto_snapshot(Broken("broken"))
        outcome = await manager.stop_auto_snapshot("broken", save=True)

    assert CANARY in str(outcome.problem)  # the caller is told
    assert "broken: " in caplog.text
    assert not ours(caplog)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_memory_server_logs_nothing_an_agent_wrote(tmp_path: Path) -> None:
    project, log = tmp_path / "project", tmp_path / "log"
    project.mkdir()
    server = StdioServerParameters(
        command=sys.executable, args=["-c", LOUD, str(log), "mcp"], cwd=project, env=environment(project)
    )
    calls: list[tuple[str, dict[str, Any]]] = [
        ("load_session_context", {}),
        ("session_store", {"action": "save", "namespace": "notes", "key": CANARY, "data": {"said": CANARY}}),
        ("session_store", {"action": "save", "namespace": f"../{CANARY}", "key": "x", "data": 1}),
        ("session_store", {"action": CANARY}),
        ("record_error", {"message": f"TypeError: {CANARY}", "count": CANARY}),
        ("search_sessions", {"query": CANARY}),
        ("show_session", {"session_id": CANARY}),
        (CANARY, {}),
    ]
    with anyio.fail_after(PATIENCE):
        async with Client(server) as client:
            for tool, arguments in calls:
                with contextlib.suppress(MCPError):  # some are refused by the protocol itself
                    await client.call_tool(tool, arguments)

    written = log.read_text()
    assert "Loaded session context" in written
    assert not [line for line in written.splitlines() if ":snapshot_plugin" in line and CANARY in line]
