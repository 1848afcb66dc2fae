"""The same as resources, for clients that attach context instead of calling tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import MCPServer

from snapshot_plugin.memory.server.failures import serving
from snapshot_plugin.memory.server.memory_tools import context_text
from snapshot_plugin.memory.server.plan import plan_resume
from snapshot_plugin.memory.server.project import ServedProject
from snapshot_plugin.memory.server.sessions import StoredSessions

__all__ = ["add_resources"]

_JSON = "application/json"
_LINES = 100
_MESSAGES = 50


def add_resources(server: MCPServer[Any], project: ServedProject, sessions: Callable[[], StoredSessions]) -> None:
    """Offer the resources on *server*."""

    @server.resource("asnap://memory/context", name="context", title="What earlier sessions left", mime_type=_JSON)
    @serving
    async def context() -> str:
        return await context_text(await project.memory())

    @server.resource("asnap://memory/{namespace}/{key}", name="entry", title="An entry", mime_type=_JSON)
    @serving
    async def entry(namespace: str, key: str) -> str:
        return json.dumps(await (await project.memory()).load(namespace, key))

    @server.resource("asnap://memory/{namespace}", name="namespace", title="Keys of a namespace", mime_type=_JSON)
    @serving
    async def namespace_keys(namespace: str) -> str:
        return json.dumps(list(await (await project.memory()).list(namespace)))

    @server.resource("asnap://sessions", name="sessions", title="Stored sessions", mime_type=_JSON)
    @serving
    async def stored() -> str:
        return (await sessions().listed(limit=_LINES)).model_dump_json()

    @server.resource("asnap://sessions/{session_id}", name="session", title="A session", mime_type=_JSON)
    @serving
    async def session(session_id: str) -> str:
        return (await sessions().show(session_id, at=None, start=None, limit=_MESSAGES)).model_dump_json()

    @server.resource("asnap://sessions/{session_id}/plan", name="plan", title="A resume plan", mime_type=_JSON)
    @serving
    async def plan(session_id: str) -> str:
        return (await plan_resume(sessions(), session_id, at=None, now=project.now())).model_dump_json()
