"""Servers to test with: in this process, and as the real command."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, TextContent

import snapshot_plugin
from snapshot_plugin import MemoryStore, SnapshotConfig
from snapshot_plugin.memory import ProjectMemory
from snapshot_plugin.memory.server.serve import MemoryServer
from snapshot_plugin.memory.server.tools import ServedProject
from snapshot_plugin.operations.work import Work
from snapshot_plugin.store.base import SnapshotStore

_SOURCE = Path(snapshot_plugin.__file__).parent.parent


@asynccontextmanager
async def connected(
    project: Path,
    store: SnapshotStore | None = None,
    *,
    mode: str = "auto",
    all_projects: bool = False,
    **options: Any,
) -> AsyncIterator[tuple[Client, ProjectMemory]]:
    """The official client, connected to a server in this process."""
    memory = ProjectMemory(project, state=project.parent / "state", **options)
    served = ServedProject(
        memory.place, store or MemoryStore(), work_in(project), memory=memory, all_projects=all_projects
    )
    async with memory, Client(MemoryServer(served), mode=mode) as client:
        yield client, memory


def work_in(project: Path) -> Work:
    """What operations need, with every place under the test's own directory."""
    places = {f"XDG_{name}_HOME": str(project.parent / name.lower()) for name in ("CACHE", "STATE")}
    return Work(SnapshotConfig(), {**places, "PATH": os.defpath}, datetime.now(UTC))


def environment(project: Path, **more: str) -> dict[str, str]:
    """What the real command needs, with every place under the test's own directory."""
    place = project.parent
    return {
        "PYTHONPATH": str(_SOURCE),
        "XDG_STATE_HOME": str(place / "state"),
        "XDG_CACHE_HOME": str(place / "cache"),
        "ASNAP_STORE": str(place / "store"),
        **more,
    }


def command(project: Path, environ: Mapping[str, str] | None = None, *options: str) -> StdioServerParameters:
    """``asnap mcp``, started in a project by a client."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "snapshot_plugin", "mcp", *options],
        cwd=project,
        env=dict(environ or environment(project)),
    )


def servers_in(project: Path) -> list[int]:
    """The ids of the server processes that were started in *project*."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            if (process / "cwd").readlink() == project:
                found.append(int(process.name))
    return sorted(found)


async def told(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tool's answer, as every client sees it: the JSON in its text. It must not be an error."""
    result = await client.call_tool(tool, arguments)
    [text] = result.content
    assert isinstance(text, TextContent)
    assert not result.is_error, text.text
    answer: dict[str, Any] = json.loads(text.text)
    assert result.structured_content in (None, answer)
    return answer


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """The code of a tool's error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return code_of(result)


def code_of(result: CallToolResult) -> str:
    """The code of a failed call. Structured content would be held against the output schema by some clients."""
    assert result.structured_content is None
    assert result.meta is not None
    code: str = dict(result.meta)["asnap/error"]["code"]
    return code
