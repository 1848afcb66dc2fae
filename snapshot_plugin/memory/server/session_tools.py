"""The tools over stored sessions: only the project's, unless all are allowed, and without secrets."""

from __future__ import annotations

from typing import Annotated, Final

import anyio.to_thread
from mcp.server.mcpserver.tools.base import Tool
from pydantic import Field

from snapshot_plugin.errors import InvalidInput, SnapshotNotFound, StoreNotFound
from snapshot_plugin.live.place import place_of
from snapshot_plugin.memory.server.tools import READS, Answer, Served, ServedProject, answer_of, argument, tool
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.redact import redact
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.operations.scope import reason
from snapshot_plugin.operations.searching import SearchRequest, search
from snapshot_plugin.operations.transcript import MessagePart, Said, said_of

__all__ = ["SESSION_TOOLS"]

_LONGEST: Final = 4000
_LINE: Final = ("session_id", "seq", "state", "agent", "cwd", "messages", "turns", "tokens")
_Limit = Annotated[int, Field(ge=1, le=200)]
_At = Annotated[int | None, argument("The snapshot's number; the newest if left out.", ge=1)]
_Session = Annotated[str, argument("The session's id, from list_snapshots.", "session_id", "session", "id")]
_Start = Annotated[int | None, argument("First message; the last ones if left out.", ge=0)]
_WORDS = 'Words, "a phrase", begin*, this OR that, this NOT that.'
_Query = Annotated[str, argument(_WORDS, "query", "text", "q")]


async def list_snapshots(*, project: Served, limit: _Limit = 20) -> Answer:
    """Agent sessions of this project that are stored."""
    scope = project.scope
    try:
        metas = await project.store.list()
    except StoreNotFound as error:
        return {"sessions": [], "hidden": 0, "notices": _never_stored(error)}
    shown = [meta for meta in metas if reason(meta, scope) is None][:limit]
    lines = [await _line(project, meta) for meta in shown]
    return {"sessions": lines, "hidden": len(metas) - len(lines), "notices": []}


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
    scope, found = project.scope, await project.store.read(session_id, at=at)
    if reason(found.meta, scope) is not None:
        raise SnapshotNotFound(
            f"session {session_id!r} is not of this project", session_id=session_id,
            hint="the user can allow it: asnap mcp --all-projects",
        )  # fmt: skip
    total = len(found.snapshot.messages)
    first = max(0, total - limit) if start is None else start
    shown = said_of(found.snapshot, tools=False, first=first + 1, last=first + limit)
    return answer_of(
        session=await _line(project, found.meta), trigger=found.meta.trigger,
        plan=[_clean(f"[{entry.status}] {entry.content}") for entry in found.snapshot.plan],
        current_task=_clean(found.snapshot.current_task),
        messages=await anyio.to_thread.run_sync(lambda: [_viewed(message) for message in shown]),
        first_index=first, total_messages=total,
        notices=[f"{finding.kind}: {finding.detail}" for finding in found.skipped],
    )  # fmt: skip


def _never_stored(error: StoreNotFound) -> list[str]:
    return [f"no session was ever stored: {error.message}"]


async def _line(project: ServedProject, meta: SnapshotMeta) -> Answer:
    """A summary of a session."""
    place = place_of(project.store)
    owner = await anyio.to_thread.run_sync(place.owner, meta.session_id) if place else None
    return answer_of(
        **{field: getattr(meta, field) for field in _LINE}, saved_at=rfc3339(meta.saved_at),
        updated_at=rfc3339(meta.updated_at) if meta.updated_at else None, title=_clean(meta.title),
        problem=_clean(meta.problem), tags=[_clean(tag) for tag in meta.tags], live=owner is not None,
    )  # fmt: skip


def _clean(text: str | None) -> str | None:
    return None if text is None else redact(text)[0]


def _viewed(message: Said) -> Answer:
    """One message as text. Secrets are removed before a very long message is truncated."""
    text: str = redact("\n".join(filter(None, map(_text, message.pieces))))[0]
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
]
