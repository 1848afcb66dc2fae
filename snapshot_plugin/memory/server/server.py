"""The MCP server: tools and resources over a project's memory and the snapshot store."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from mcp.server.mcpserver import MCPServer

from snapshot_plugin.memory.server.memory_tools import add_memory_tools
from snapshot_plugin.memory.server.resources import add_resources
from snapshot_plugin.memory.server.session_tools import add_session_tools
from snapshot_plugin.memory.server.sessions import StoredSessions
from snapshot_plugin.memory import ProjectMemory
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.store.base import SnapshotStore

__all__ = ["make_server"]

_INSTRUCTIONS = """A memory of this project that outlives sessions. Begin with load_session_context. Keep what the \
next session should know with session_store (decisions, conventions, open ends, baselines); no secrets. \
search_sessions and show_session look into earlier conversations."""


def make_server(memory: ProjectMemory, store: SnapshotStore, *, clock: Clock = utc_now) -> MCPServer[Any]:
    """A server over an open memory and a store. Both stay the caller's to close."""
    server: MCPServer[Any] = MCPServer(
        name="asnap",
        title="Agent session memory",
        instructions=_INSTRUCTIONS,
        version=version("snapshot-plugin"),
        log_level="WARNING",
    )
    sessions = StoredSessions(store, memory.project)
    add_memory_tools(server, memory)
    add_session_tools(server, sessions, clock=clock)
    add_resources(server, memory, sessions, clock=clock)
    return server
