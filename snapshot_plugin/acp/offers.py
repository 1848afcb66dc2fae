"""What the client is offered whatever the agent can do: load, resume, list, fork, close, delete."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any

from snapshot_plugin.acp.notes import split_notes
from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.times import rfc3339

__all__ = ["PAGE", "BadCursor", "merged_list", "offered", "page"]

_OURS = ("list", "resume", "fork", "close", "delete")
_CURSOR = "asnap"
PAGE = 50


class BadCursor(InvalidInput):
    """A cursor we did not give out."""


def offered(result: dict[str, Any]) -> dict[str, Any]:
    """The agent's `initialize` answer, with our abilities added and nothing else changed."""
    capabilities = _object(result.get("agentCapabilities"))
    session = _object(capabilities.get("sessionCapabilities"))
    ours: dict[str, Any] = {name: {} for name in _OURS if session.get(name) is None}
    able = {**capabilities, "loadSession": True, "sessionCapabilities": {**session, **ours}}
    return {**result, "agentCapabilities": able}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def merged_list(
    ours: Sequence[SnapshotMeta],
    agents: Sequence[dict[str, Any]],
    known: dict[str, str],
    cwd: str | None,
    *,
    deleted: AbstractSet[str] = frozenset(),
) -> list[dict[str, Any]]:
    """Our sessions and the agent's as `SessionInfo`, newest first, each once and under our id for it.

    *known*: agent id → our id. *deleted*: what the user deleted; agents that cannot delete keep listing it; we do
    not. Where both know a session, ours is listed, with the agent's title if it has none.
    """
    out = {meta.session_id: _info(meta) for meta in ours if meta.cwd is not None}
    for info in agents:
        session_id = info.get("sessionId")
        if not isinstance(session_id, str) or not isinstance(info.get("cwd"), str):
            continue
        public = known.get(session_id, session_id)
        if public in deleted and public not in out:
            continue
        title = {"title": own} if (own := _without_notes(info.get("title"))) else {}
        out[public] = {**title, **out[public]} if public in out else {**info, **title, "sessionId": public}
    wanted = (info for info in out.values() if cwd in (None, info["cwd"]))
    return sorted(wanted, key=_place, reverse=True)


def _without_notes(title: object) -> str:
    """A title that an agent made of the first prompt, without the restoration note beside that prompt."""
    if not isinstance(title, str):
        return ""
    return " ".join(piece.strip() for is_note, piece in split_notes(title) if not is_note).strip()


def _info(meta: SnapshotMeta) -> dict[str, Any]:
    info = {"sessionId": meta.session_id, "cwd": meta.cwd, "updatedAt": rfc3339(meta.changed_at)}
    return {**info, "title": meta.title} if meta.title else info


def _place(info: dict[str, Any]) -> tuple[str, str]:
    """Where a session stands in the list: by its time, which agents write in their own ways, then by its id."""
    try:
        moment = datetime.fromisoformat(info["updatedAt"])
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return rfc3339(aware), info["sessionId"]
    except (KeyError, TypeError, ValueError, OverflowError):
        return "", info["sessionId"]


def page(sessions: Sequence[dict[str, Any]], cursor: Any) -> dict[str, Any]:
    """One page of a merged list, and an opaque cursor to the next.

    The cursor names a place in the order, so sessions that come, go or move up in between are neither an error nor
    make others appear twice.

    Raises:
        BadCursor: the cursor was not issued here.
    """
    if cursor is not None:
        last = _decoded(cursor)
        sessions = [info for info in sessions if _place(info) < last]
    chunk = list(sessions[:PAGE])
    more = len(sessions) > PAGE
    return {"sessions": chunk, **({"nextCursor": _encoded(_place(chunk[-1]))} if more else {})}


def _encoded(place: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([_CURSOR, *place]).encode()).decode()


def _decoded(cursor: Any) -> tuple[str, str]:
    try:
        mark, moment, session_id = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, TypeError, RecursionError) as error:
        raise BadCursor("that cursor is not one of ours") from error
    if mark != _CURSOR or not isinstance(moment, str) or not isinstance(session_id, str):
        raise BadCursor("that cursor is not one of ours")
    return moment, session_id
