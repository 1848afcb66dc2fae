"""An orchestrator as its author writes it with the SDK, and the scripted agent it works with."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
from acp import schema

import snapshot_plugin
from snapshot_plugin import SessionSnapshot, SnapshotManager
from snapshot_plugin.acp.hosts.sdk_client import Recorder, record
from snapshot_plugin.acp.hosts.stdio_agent import StdioAgent
from snapshot_plugin.acp.replay import replay
from tests.acp_sdk.agents.updates import text_block

AGENT = (sys.executable, "-m", "tests.acp_agent")
PATIENCE = 60.0
ROOT = Path(snapshot_plugin.__file__).parent.parent
Json = dict[str, Any]


class Orchestrator:
    """A client of the SDK's that allows everything and keeps what it is shown."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[str] = []
        self.on_update: Callable[[str, Any], None] = lambda _session_id, _update: None

    async def session_update(self, session_id: str, update: Any, **_kwargs: Any) -> None:
        self.updates.append(update)
        self.on_update(session_id, update)

    async def request_permission(
        self, options: list[Any], session_id: str, **_kwargs: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append(session_id)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def create_terminal(self, **_kwargs: Any) -> schema.CreateTerminalResponse:
        return schema.CreateTerminalResponse(terminal_id="t-1")

    async def terminal_output(self, **_kwargs: Any) -> schema.TerminalOutputResponse:
        return schema.TerminalOutputResponse(output="shown in the terminal", truncated=False)

    async def wait_for_terminal_exit(self, **_kwargs: Any) -> schema.WaitForTerminalExitResponse:
        return schema.WaitForTerminalExitResponse(exit_code=0)

    async def release_terminal(self, **_kwargs: Any) -> None:
        return None

    def on_connect(self, _connection: Any) -> None:
        pass

    @property
    def heard(self) -> str:
        """The words of the agent."""
        said = [update for update in self.updates if update.session_update == "agent_message_chunk"]
        return "".join(update.content.text for update in said)


def connected(client: Any, transport: Any) -> Any:
    """The SDK's connection. Its models of clients and transports are stricter than what it takes."""
    return acp.connect_to_agent(client, transport)


def spawned(*flags: str) -> Any:
    """The scripted agent, started by the SDK itself."""
    client: Any = Orchestrator()
    return acp.spawn_agent_process(client, *AGENT, *flags, env={"PYTHONPATH": str(ROOT)})


@asynccontextmanager
async def recorded(
    manager: SnapshotManager, *flags: str, client: Any = None
) -> AsyncIterator[tuple[Any, Recorder, StdioAgent]]:
    """A recorded connection to the scripted agent, shaken hands."""
    agent = await StdioAgent.start([*AGENT, *flags])
    connection = connected(client or Orchestrator(), agent)
    try:
        recorder = record(connection, manager, command=AGENT)
        await connection.initialize(protocol_version=1)
        yield connection, recorder, agent
    finally:
        await connection.close()


async def new_session(connection: Any, cwd: str = "/") -> str:
    return str((await connection.new_session(cwd=cwd, mcp_servers=[])).session_id)


async def prompt(connection: Any, session_id: str, text: str) -> Any:
    asked = connection.prompt(session_id=session_id, prompt=[text_block(text)])
    return await asyncio.wait_for(asked, PATIENCE)


def shown(snapshot: SessionSnapshot) -> list[Json]:
    """Every update a client would be shown."""
    return list(replay(snapshot, {}, tool_bytes=1 << 20))


def said(snapshot: SessionSnapshot) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in snapshot.messages]


def timeless(snapshot: SessionSnapshot) -> Json:
    """A record without what no two recordings have in common: times, the session's name, the spool's numbers."""
    raw: Json = snapshot.model_dump(mode="json")
    metadata = {key: value for key, value in raw["metadata"].items() if key != "spool"}
    messages = [{key: value for key, value in message.items() if key != "timestamp"} for message in raw["messages"]]
    left_out = ("created_at", "updated_at", "session_id", "agent_session_id")
    kept = {key: value for key, value in raw.items() if key not in left_out}
    return {**kept, "metadata": metadata, "messages": messages}
