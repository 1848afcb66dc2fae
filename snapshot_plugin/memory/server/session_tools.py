"""The tools over the snapshot store."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import Field

from snapshot_plugin.memory.server.answers import (
    ResumePlan,
    SearchAnswer,
    SessionList,
    SessionView,
    SnapshotTaken,
)
from snapshot_plugin.memory.server.failures import answering
from snapshot_plugin.memory.server.plan import plan_resume
from snapshot_plugin.memory.server.sessions import StoredSessions
from snapshot_plugin.manager.ports import Clock

__all__ = ["add_session_tools"]

_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

_Limit = Annotated[int, Field(ge=1, le=200)]
_At = Annotated[int | None, Field(ge=1, description="The snapshot's number; without it, the newest.")]
_Session = Annotated[str, Field(description="The session's id, from list_snapshots.")]


def add_session_tools(server: MCPServer[Any], sessions: StoredSessions, *, clock: Clock) -> None:
    """Offer the tools on *server*."""

    @answering
    async def list_snapshots(
        limit: _Limit = 20,
        here: Annotated[bool, Field(description="Only sessions that worked in this project.")] = False,
    ) -> SessionList:
        return await sessions.listed(limit=limit, here=here)

    @answering
    async def search_sessions(
        query: Annotated[str, Field(description="Words to look for, in any case.")], limit: _Limit = 10
    ) -> SearchAnswer:
        return await sessions.search(query, limit=limit)

    @answering
    async def show_session(
        session_id: _Session,
        at: _At = None,
        start: Annotated[int | None, Field(ge=0, description="First message; without it, the last ones.")] = None,
        limit: _Limit = 20,
    ) -> SessionView:
        return await sessions.show(session_id, at=at, start=start, limit=limit)

    @answering
    async def take_snapshot(
        session_id: Annotated[
            str | None, Field(description="Without it, the one live session of this project.")
        ] = None,
        tag: Annotated[str, Field(min_length=1, max_length=100, description="How to find it again.")] = "agent",
    ) -> SnapshotTaken:
        return await sessions.take(session_id, tag=tag)

    @answering
    async def resume_plan(
        session_id: Annotated[
            str | None, Field(description="Without it, this project's session that changed last.")
        ] = None,
        at: _At = None,
    ) -> ResumePlan:
        return await plan_resume(sessions, session_id, at=at, now=clock())

    add = server.add_tool
    add(list_snapshots, title="Stored sessions", description="Agent sessions that are stored.", annotations=_READS)
    add(
        search_sessions,
        title="Search sessions",
        description="Find what was said or done in stored sessions; show_session opens a hit.",
        annotations=_READS,
    )
    add(show_session, title="Show a session", description="Read a stored session.", annotations=_READS)
    add(
        take_snapshot,
        title="Save a live session now",
        description="Save a running session now, under a tag. Only its own process can; it is asked.",
        annotations=_ADDS,
    )
    add(
        resume_plan,
        title="Plan a resume",
        description="What bringing a session back would do, and the command for it. Nothing is done.",
        annotations=_READS,
    )
