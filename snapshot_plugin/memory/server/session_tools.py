"""The tools over the snapshot store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Resolve
from mcp.server.mcpserver.tools.base import Tool
from mcp_types import ToolAnnotations
from pydantic import Field

from snapshot_plugin.manager.ports import utc_now
from snapshot_plugin.memory.server.answers import (
    ResumePlan,
    SearchAnswer,
    SessionList,
    SessionView,
    SnapshotTaken,
)
from snapshot_plugin.memory.server.plan import plan_resume
from snapshot_plugin.memory.server.project import Served
from snapshot_plugin.memory.server.sessions import StoredSessions
from snapshot_plugin.memory.server.tools import READS, tool

__all__ = ["SESSION_TOOLS"]

_ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_Limit = Annotated[int, Field(ge=1, le=200)]
_At = Annotated[int | None, Field(ge=1, description="The snapshot's number; the newest if left out.")]
_Session = Annotated[str, Field(description="The session's id, from list_snapshots.")]


async def _sessions(ctx: Context[Any, Any], project: Served) -> Callable[[], StoredSessions]:
    assert project is ctx.mcp_server.project  # type: ignore[attr-defined]  # noqa: S101 — asked for its roots
    return ctx.mcp_server.sessions  # type: ignore[attr-defined,no-any-return]


Sessions = Annotated[Callable[[], StoredSessions], Resolve(_sessions)]
"""A parameter of tools: gives the sessions that may be seen; `InvalidInput` if there is no project."""


async def list_snapshots(*, sessions: Sessions, limit: _Limit = 20) -> SessionList:
    return await sessions().listed(limit=limit)


async def search_sessions(
    *,
    sessions: Sessions,
    query: Annotated[str, Field(description='Words, "a phrase", begin*, this OR that, this NOT that.')],
    limit: _Limit = 10,
) -> SearchAnswer:
    return await sessions().search(query, limit=limit)


async def show_session(
    *,
    sessions: Sessions,
    session_id: _Session,
    at: _At = None,
    start: Annotated[int | None, Field(ge=0, description="First message; the last ones if left out.")] = None,
    limit: _Limit = 20,
) -> SessionView:
    return await sessions().show(session_id, at=at, start=start, limit=limit)


async def take_snapshot(
    *,
    sessions: Sessions,
    session_id: Annotated[
        str | None, Field(description="The one live session of this project if left out.")
    ] = None,
    tag: Annotated[str, Field(min_length=1, max_length=100, description="How to find it again.")] = "agent",
) -> SnapshotTaken:
    return await sessions().take(session_id, tag=tag)


async def resume_plan(
    *,
    sessions: Sessions,
    session_id: Annotated[str | None, Field(description="The session that changed last if left out.")] = None,
    at: _At = None,
) -> ResumePlan:
    return await plan_resume(sessions(), session_id, at=at, now=utc_now())


SESSION_TOOLS: list[Tool] = [
    tool(list_snapshots, "Stored sessions", "Agent sessions of this project that are stored.", READS),
    tool(
        search_sessions,
        "Search sessions",
        "Find what was said or done in stored sessions of this project; show_session opens a hit.",
        READS,
    ),
    tool(show_session, "Show a session", "Read a stored session of this project. Secrets are taken out.", READS),
    tool(
        take_snapshot,
        "Save a live session now",
        "Save a running session now, under a tag. Only its own process can; it is asked.",
        _ADDS,
    ),
    tool(
        resume_plan,
        "Plan a resume",
        "What bringing a session back would do, and the command for it. Nothing is done.",
        READS,
    ),
]
