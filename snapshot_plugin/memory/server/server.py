"""The MCP server: tools and resources over a project's memory and its stored sessions."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer

from snapshot_plugin.memory.server.memory_tools import MEMORY_TOOLS
from snapshot_plugin.memory.server.project import ServedProject
from snapshot_plugin.memory.server.resources import add_resources
from snapshot_plugin.memory.server.session_tools import SESSION_TOOLS
from snapshot_plugin.memory.server.sessions import StoredSessions
from snapshot_plugin.store.base import SnapshotStore

__all__ = ["MemoryServer"]

_INSTRUCTIONS = """A memory of this project that outlives sessions. Begin with load_session_context. Keep what the \
next session should know: session_store (decisions, conventions, open ends, baselines), record_error, \
observe_endpoint, set_noise; no secrets. compare_baseline finds regressions. search_sessions and show_session look \
into earlier conversations."""


class MemoryServer(MCPServer[Any]):
    """A server over a project and a store. Both stay the caller's to run and to close."""

    def __init__(
        self, project: ServedProject, store: SnapshotStore, *, all_projects: bool = False, cache: Path | None = None
    ) -> None:
        super().__init__(
            name="asnap",
            title="Agent session memory",
            instructions=_INSTRUCTIONS,
            version=version("snapshot-plugin"),
            log_level="WARNING",
            tools=[*MEMORY_TOOLS, *SESSION_TOOLS],
        )
        self.project = project
        self._store, self._all_projects, self._cache = store, all_projects, cache
        add_resources(self, project, self.sessions)

    def sessions(self) -> StoredSessions:
        """The stored sessions that an agent of the project may see; `InvalidInput` if there is no project."""
        here = self.project.choose().directory
        return StoredSessions(self._store, here, all_projects=self._all_projects, cache=self._cache)
