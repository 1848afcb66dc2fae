"""The project that a server serves, and its memory, which is opened when a tool first needs it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import ListRoots, Resolve
from mcp_types import ListRootsResult

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.memory.place import ProjectPlace, find_project
from snapshot_plugin.memory.project_memory import ProjectMemory
from snapshot_plugin.operations.scope import Selection
from snapshot_plugin.operations.work import Work
from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Served", "ServedProject"]


class ServedProject:
    """The project of one server, its memory, and the sessions of *store* that an agent may see.

    The user names the project (*place*), else the client's roots do, else the current directory.
    """

    def __init__(
        self,
        place: ProjectPlace | None,
        store: SnapshotStore,
        work: Work,
        *,
        memory: ProjectMemory | None = None,
        all_projects: bool = False,
        asks_roots: bool = False,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.place, self.store, self.work = place, store, work
        self.asks_roots = asks_roots and place is None
        """Whether the client still has to be asked for its roots."""
        self._memory, self._all_projects, self._say = memory, all_projects, say

    @property
    def scope(self) -> Selection:
        """The sessions that the agent may see. Raises `InvalidInput` if there is no project."""
        here = str(self.choose().directory)
        return Selection(below=None if self._all_projects else here, unplaced=self._all_projects)

    def announce(self) -> None:
        """Report which project is served and what its memory holds, without counting a session."""
        try:
            place = self.place or find_project()
        except InvalidInput as error:
            self._say(f"no project yet: {error}")
            return
        self._say(f"project {place.directory} ({place.why}). {ProjectMemory(place).peek().start_line}")

    def choose(self, roots: Sequence[Path] = ()) -> ProjectPlace:
        """Choose the project, once. Raises `InvalidInput` if there is none."""
        self.asks_roots = False
        if self.place is None:
            self.place = find_project(roots=roots)
            if roots:
                self.announce()
        return self.place

    async def memory(self) -> ProjectMemory:
        """The memory, opened when it is first needed. Raises `InvalidInput` if there is no project."""
        if self._memory is None:
            self._memory = await ProjectMemory(self.choose(), lazy=True).__aenter__()
        return self._memory

    async def aclose(self) -> None:
        """Write what is only in memory."""
        if self._memory is not None:
            await self._memory.aclose()


async def _ask_roots(ctx: Context[Any, Any]) -> ListRoots | ListRootsResult | None:
    project: ServedProject = ctx.mcp_server.project  # type: ignore[attr-defined]
    can = ctx.client_capabilities
    return ListRoots() if project.asks_roots and can is not None and can.roots is not None else None


async def _served(
    ctx: Context[Any, Any], roots: Annotated[ListRootsResult | None, Resolve(_ask_roots)]
) -> ServedProject:
    project: ServedProject = ctx.mcp_server.project  # type: ignore[attr-defined]
    if project.asks_roots and roots is not None:
        urls = [urlsplit(str(root.uri)) for root in roots.roots]
        with contextlib.suppress(InvalidInput):  # the tool reports it
            project.choose([Path(unquote(url.path)) for url in urls if url.scheme == "file"])
    return project


Served = Annotated[ServedProject, Resolve(_served)]
"""A parameter of tools: the server's project. The client is asked for its roots first, if needed."""
