"""The same as resources, for clients that attach context instead of calling tools."""

from __future__ import annotations

import json
from typing import Any

from mcp.server.mcpserver import MCPServer

from snapshot_plugin.memory.server.failures import serving
from snapshot_plugin.memory.server.plan import plan_resume
from snapshot_plugin.memory.server.sessions import StoredSessions
from snapshot_plugin.memory import ProjectMemory
from snapshot_plugin.manager.ports import Clock

__all__ = ["add_resources"]

_JSON = "application/json"
_LINES = 100
_MESSAGES = 50


def add_resources(server: MCPServer[Any], memory: ProjectMemory, sessions: StoredSessions, *, clock: Clock) -> None:
    """Offer the resources on *server*."""

    @server.resource("asnap://memory/context", name="context", title="What earlier sessions left", mime_type=_JSON)
    @serving
    async def context() -> str:
        return (await memory.load_context()).model_dump_json()

    @server.resource("asnap://memory/{namespace}/{key}", name="entry", title="An entry", mime_type=_JSON)
    @serving
    async def entry(namespace: str, key: str) -> str:
        return json.dumps(await memory.load(namespace, key))

    @server.resource("asnap://memory/{namespace}", name="namespace", title="Keys of a namespace", mime_type=_JSON)
    @serving
    async def namespace_keys(namespace: str) -> str:
        return json.dumps(list(await memory.list(namespace)))

    @server.resource("asnap://sessions", name="sessions", title="Stored sessions", mime_type=_JSON)
    @serving
    async def stored() -> str:
        return (await sessions.listed(limit=_LINES, here=False)).model_dump_json()

    @server.resource("asnap://sessions/{session_id}", name="session", title="A session", mime_type=_JSON)
    @serving
    async def session(session_id: str) -> str:
        return (await sessions.show(session_id, at=None, start=None, limit=_MESSAGES)).model_dump_json()

    @server.resource("asnap://sessions/{session_id}/plan", name="plan", title="A resume plan", mime_type=_JSON)
    @serving
    async def plan(session_id: str) -> str:
        return (await plan_resume(sessions, session_id, at=None, now=clock())).model_dump_json()
