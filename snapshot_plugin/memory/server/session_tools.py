"""The tools over stored sessions: only the project's, unless all are allowed, and without secrets."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import anyio.to_thread
from mcp.server.mcpserver.tools.base import Tool
from pydantic import Field

from snapshot_plugin.errors import (
    InvalidInput,
    NotFound,
    SnapshotError,
    SnapshotNotFound,
    StoreNotFound,
    StoreUnavailable,
)
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import place_of
from snapshot_plugin.manager.ports import utc_now
from snapshot_plugin.manager.predeploy import ask_everyone
from snapshot_plugin.memory.privacy import redacted
from snapshot_plugin.memory.server.tools import (
    ADDS,
    READS,
    Answer,
    Served,
    ServedProject,
    answer_of,
    argument,
    tool,
)
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.repair import repair
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.operations.command_trust import command_trust, start_of
from snapshot_plugin.operations.conversation import MessagePart, Said, said_of
from snapshot_plugin.operations.searching import SearchRequest, search
from snapshot_plugin.operations.sessions import reason
from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["SESSION_TOOLS", "list_snapshots", "resume_plan", "show_session"]

_TIMEOUT: Final = 30.0
_LONGEST: Final = 4000
_LINE: Final = ("session_id", "seq", "state", "agent", "cwd", "messages", "turns", "tokens")
_Limit = Annotated[int, Field(ge=1, le=200)]
_At = Annotated[int | None, argument("The snapshot's number; the newest if left out.", ge=1)]
_ID = ("session_id", "session", "id")
_Session = Annotated[str, argument("The session's id, from list_snapshots.", *_ID)]
_LiveSession = Annotated[str | None, argument("The one live session of this project if left out.", *_ID)]
_LastSession = Annotated[str | None, argument("The session that changed last if left out.", *_ID)]
_Start = Annotated[int | None, argument("First message; the last ones if left out.", ge=0)]
_WORDS = 'Words, "a phrase", begin*, this OR that, this NOT that.'
_Query = Annotated[str, argument(_WORDS, "query", "text", "q")]
_Tag = Annotated[str, argument("How to find it again.", min_length=1, max_length=100)]


async def list_snapshots(*, project: Served, limit: _Limit = 20) -> Answer:
    """Agent sessions of this project that are stored."""
    metas, notices, others = await _visible(project)
    lines = [await _line(project, meta) for meta in metas[:limit]]
    return {"sessions": lines, "hidden": len(metas) - len(lines) + others, "notices": notices}


async def search_sessions(*, project: Served, query: _Query, limit: _Limit = 10) -> Answer:
    """Find what was said or done in stored sessions of this project; show_session opens a hit."""
    if not query.strip():
        raise InvalidInput("there is nothing to search for", hint="pass some words")
    scope = project.scope
    asked = SearchRequest(query=query, cwd=scope.below, unplaced=scope.unplaced, limit=limit)
    try:
        found = await search(project.work, project.store, asked)
    except StoreNotFound as error:
        return {"hits": [], "total_hits": 0, "sessions_searched": 0, "notices": _never_stored(error)}
    hits = [
        answer_of(
            session_id=hit.session_id, message_index=(hit.message or 0) - 1, role=hit.role or "session",
            title=_clean(hit.title), excerpt=hit.snippet,  # the index holds no secrets
        ) for hit in found.hits
    ]  # fmt: skip
    notices = [f"{name} cannot be read; see asnap check" for name in found.unreadable]
    return {"hits": hits, "total_hits": found.total_hits, "sessions_searched": found.searched, "notices": notices}


async def show_session(
    *, project: Served, session_id: _Session, at: _At = None, start: _Start = None, limit: _Limit = 20
) -> Answer:
    """Read a stored session of this project. Secrets are taken out."""
    found = await _read(project, session_id, at)
    total = len(found.snapshot.messages)
    first = max(0, total - limit) if start is None else start
    shown = said_of(found.snapshot, tools=False, first=first + 1, last=first + limit)
    return answer_of(
        session=await _line(project, found.meta), trigger=found.meta.trigger,
        plan=[_clean(f"[{entry.status}] {entry.content}") for entry in found.snapshot.plan],
        current_task=_clean(found.snapshot.current_task),
        messages=await anyio.to_thread.run_sync(lambda: [_viewed(message) for message in shown]),
        first_index=first, total_messages=total, notices=_skipped(found),
    )  # fmt: skip


async def take_snapshot(*, project: Served, session_id: _LiveSession = None, tag: _Tag = "agent") -> Answer:
    """Save a running session now, under a tag. Only its own process can; it is asked."""
    newest = (await _read(project, session_id or await _only_live_one(project))).meta
    outcomes = await ask_everyone(project.store, tag=tag, within=_TIMEOUT, only={newest.session_id})
    if not outcomes or outcomes[0].owner is None:
        raise NotFound(
            f"session {newest.session_id!r} is not live; its newest snapshot is {newest.seq}",
            hint="only the process that runs a session can save it; list_snapshots shows which are live",
        )
    [done], owner = outcomes, outcomes[0].owner
    who = f"process {owner.pid} on {owner.host}, which runs session {newest.session_id!r},"
    if done.status == "not_reachable":
        raise StoreUnavailable(f"{who} did not answer: {done.problem}", hint="try again")
    if done.status != "saved" or done.seq is None:
        raise SnapshotError(f"{who} did not save it: {done.problem or done.status}")
    return {"session_id": newest.session_id, "seq": done.seq, "tag": tag, "owner_pid": owner.pid}


async def resume_plan(*, project: Served, session_id: _LastSession = None, at: _At = None) -> Answer:
    """What bringing a session back would do, and the command for it. Nothing is done."""
    if session_id is None:
        metas, _, _ = await _visible(project)
        if not metas:
            raise NotFound(f"no session of {project.choose().directory} is stored")
        session_id = metas[0].session_id
    found = await _read(project, session_id, at)
    owner = await _owner(project, session_id)
    snapshot, notices = repair(found.snapshot)
    agent, config = snapshot.agent, snapshot.config
    command = list(agent.command) if agent else []
    run = f"asnap run --session {shlex.quote(as_reference(session_id))} -- {shlex.join(command)}"
    confirmed = await _is_confirmed(project, snapshot)
    return answer_of(
        session_id=session_id, seq=found.ref.seq,
        age_seconds=max(0.0, (utc_now() - found.meta.changed_at).total_seconds()),
        messages=len(snapshot.messages), turns=snapshot.metrics.turns, tokens=snapshot.metrics.total_tokens,
        agent=agent.name if agent else None, agent_command=[_clean(part) for part in command],
        cwd=config.cwd, mode=config.mode, model=config.model,
        mcp_servers=[server.name for server in config.mcp_servers], live=owner is not None,
        repairs=[notice.detail for notice in notices],
        steps=list(_steps(snapshot, found.ref.seq, owner, len(notices), confirmed=confirmed)),
        command=_clean(run) if command else None, confirmed=confirmed, notices=_skipped(found),
    )  # fmt: skip


async def _is_confirmed(project: ServedProject, snapshot: SessionSnapshot) -> bool:
    """Whether the recorded command may run: it was recorded here, or the user confirmed it; see `command_trust`."""
    if snapshot.agent is None or not snapshot.agent.command:
        return True
    start = await start_of(project.store, snapshot, snapshot.agent.command, snapshot.config.cwd)
    trust = await anyio.to_thread.run_sync(command_trust, project.work, project.store)
    return await anyio.to_thread.run_sync(trust.is_trusted, start)


async def _visible(project: ServedProject) -> tuple[Sequence[SnapshotMeta], list[str], int]:
    """The visible sessions, last changed first; notices; and the number of hidden sessions."""
    scope = project.scope
    try:
        metas = await project.store.list()
    except StoreNotFound as error:
        return (), _never_stored(error), 0
    seen = [meta for meta in metas if reason(meta, scope) is None]
    return seen, [], len(metas) - len(seen)


def _never_stored(error: StoreNotFound) -> list[str]:
    return [f"no session was ever stored: {error.message}"]


async def _read(project: ServedProject, session_id: str, at: int | None = None) -> StoredSnapshot:
    """Read a session. Raises `SnapshotNotFound` if it is of another project."""
    scope, found = project.scope, await project.store.read(session_id, at=at)
    if reason(found.meta, scope) is not None:
        raise SnapshotNotFound(
            f"session {session_id!r} is not of this project", session_id=session_id,
            hint="the user can allow it: asnap mcp --all-projects",
        )  # fmt: skip
    return found


async def _owner(project: ServedProject, session_id: str) -> Owner | None:
    """The process that runs a stored session; None if no process does, or if that is unknown."""
    place = place_of(project.store)
    return await anyio.to_thread.run_sync(place.owner, session_id) if place else None


async def _line(project: ServedProject, meta: SnapshotMeta) -> Answer:
    """A summary of a session."""
    return answer_of(
        **{field: getattr(meta, field) for field in _LINE}, saved_at=rfc3339(meta.saved_at),
        updated_at=rfc3339(meta.updated_at) if meta.updated_at else None, title=_clean(meta.title),
        problem=_clean(meta.problem), tags=[_clean(tag) for tag in meta.tags],
        live=await _owner(project, meta.session_id) is not None,
    )  # fmt: skip


def _clean(text: str | None) -> str | None:
    return None if text is None else redacted(text)[0]


async def _only_live_one(project: ServedProject) -> str:
    metas, _, _ = await _visible(project)
    live = [meta.session_id for meta in metas if await _owner(project, meta.session_id) is not None]
    if not live:
        raise NotFound("no session of this project is live", hint="only a running session can be saved")
    if len(live) > 1:
        named = f"{len(live)} sessions of this project are live: {', '.join(live)}"
        raise InvalidInput(named, hint="name the session: take_snapshot(session_id=…)")
    return live[0]


def _skipped(found: StoredSnapshot) -> list[str]:
    """What had to be skipped to read a snapshot."""
    return [f"{finding.kind}: {finding.detail}" for finding in found.skipped]


def _steps(
    snapshot: SessionSnapshot, seq: int, owner: Owner | None, repairs: int, *, confirmed: bool
) -> Iterator[str]:
    if not confirmed:
        yield (
            "ask the user: the session came with an import, and its command and directory are not confirmed; "
            f"asnap resume {shlex.quote(as_reference(snapshot.session_id))} shows them and asks"
        )
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


def _viewed(message: Said) -> Answer:
    """One message as text. Secrets are removed before a very long message is truncated."""
    text = redacted("\n".join(filter(None, map(_text, message.pieces))))[0]
    said_at = rfc3339(message.at) if message.at else None
    return answer_of(
        index=message.number - 1, role=message.role, text=text[:_LONGEST], timestamp=said_at,
        shortened=len(text) > _LONGEST,
    )  # fmt: skip


def _text(piece: MessagePart) -> str:
    if piece.kind == "text":
        return piece.text
    kind = f"tool {piece.status or 'started'}" if piece.kind == "tool" else piece.kind
    return f"[{kind}] {piece.text}".strip()


SESSION_TOOLS: list[Tool] = [
    tool(list_snapshots, "Stored sessions", READS),
    tool(search_sessions, "Search sessions", READS),
    tool(show_session, "Show a session", READS),
    tool(take_snapshot, "Save a live session now", ADDS),
    tool(resume_plan, "Plan a resume", READS),
]
