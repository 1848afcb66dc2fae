"""What bringing a session back would do, without doing it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime

from snapshot_plugin.live.lease import Owner
from snapshot_plugin.memory.server.answers import ResumePlan
from snapshot_plugin.memory.server.sessions import StoredSessions, clean, skipped
from snapshot_plugin.model.repair import repair
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["plan_resume"]


async def plan_resume(
    sessions: StoredSessions, session_id: str | None, *, at: int | None, now: datetime
) -> ResumePlan:
    """The plan for a session; without a name, for the one of this project that changed last."""
    found = await sessions.read(session_id or await sessions.newest_here(), at)
    return _plan(found, await sessions.owner(found.ref.session_id), now)


def _plan(found: StoredSnapshot, owner: Owner | None, now: datetime) -> ResumePlan:
    snapshot, notices = repair(found.snapshot)
    agent, config = snapshot.agent, snapshot.config
    command = list(agent.command) if agent else []
    return ResumePlan(
        session_id=snapshot.session_id,
        seq=found.ref.seq,
        age_seconds=max(0.0, (now - found.meta.changed_at).total_seconds()),
        messages=len(snapshot.messages),
        turns=snapshot.metrics.turns,
        tokens=snapshot.metrics.total_tokens,
        agent=agent.name if agent else None,
        agent_command=[clean(part) or "" for part in command],
        cwd=config.cwd,
        mode=config.mode,
        model=config.model,
        mcp_servers=[server.name for server in config.mcp_servers],
        live=owner is not None,
        repairs=[notice.detail for notice in notices],
        steps=list(_steps(snapshot, found.ref.seq, owner, len(notices))),
        command=clean(f"asnap run --session {shlex.quote(snapshot.session_id)} -- {shlex.join(command)}")
        if command
        else None,
        notices=skipped(found),
    )


def _steps(snapshot: SessionSnapshot, seq: int, owner: Owner | None, repairs: int) -> Iterator[str]:
    if owner is not None:
        yield f"stop process {owner.pid} on {owner.host}, which runs the session, or fork the session instead"
    yield f"take snapshot {seq} with {len(snapshot.messages)} messages"
    if repairs:
        yield f"repair {repairs} places where the session was interrupted; tools are never run again"
    name = snapshot.agent.name if snapshot.agent and snapshot.agent.name else "the agent"
    yield f"start {name}{f' in {snapshot.config.cwd}' if snapshot.config.cwd else ''}"
    settings = {"mode": snapshot.config.mode, "model": snapshot.config.model}
    known = [f"{what} {value}" for what, value in settings.items() if value]
    if known:
        yield f"set {' and '.join(known)} again"
    yield "let it load the session; if it cannot, give it the transcript"
