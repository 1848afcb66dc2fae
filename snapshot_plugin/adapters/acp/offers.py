"""What the client is offered whatever the agent can do: load, resume, list, fork, close, delete."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.value import rfc3339

__all__ = ["BadCursor", "can", "merged_list", "offered", "page"]

_OURS = ("list", "resume", "fork", "close", "delete")
PAGE = 50


class BadCursor(ValueError):
    """A cursor we did not give out."""


def offered(result: dict[str, Any]) -> dict[str, Any]:
    """The agent's `initialize` answer, with our abilities added and nothing else changed."""
    capabilities = dict(result.get("agentCapabilities") or {})
    session = dict(capabilities.get("sessionCapabilities") or {})
    for name in _OURS:
        if session.get(name) is None:
            session[name] = {}
    return {
        **result,
        "agentCapabilities": {**capabilities, "loadSession": True, "sessionCapabilities": session},
    }


def can(capabilities: dict[str, Any], name: str) -> bool:
    """Whether the agent itself advertises a session method."""
    return (capabilities.get("sessionCapabilities") or {}).get(name) is not None


def merged_list(
    ours: Sequence[SnapshotMeta], agents: Sequence[dict[str, Any]], known: dict[str, str], cwd: str | None
) -> list[dict[str, Any]]:
    """Our sessions and the agent's as `SessionInfo`, newest first, each once. *known*: agent id → our id."""
    out: dict[str, dict[str, Any]] = {}
    for meta in ours:
        if meta.cwd is not None and cwd in (None, meta.cwd):
            info: dict[str, Any] = {
                "sessionId": meta.session_id,
                "cwd": meta.cwd,
                "updatedAt": rfc3339(meta.sort_key),
            }
            if meta.title:
                info["title"] = meta.title
            out[meta.session_id] = info
    for info in agents:
        session_id = info.get("sessionId")
        if isinstance(session_id, str) and cwd in (None, info.get("cwd")):
            out.setdefault(known.get(session_id, session_id), info)
    return sorted(out.values(), key=lambda info: str(info.get("updatedAt") or ""), reverse=True)


def page(sessions: Sequence[dict[str, Any]], cursor: Any) -> dict[str, Any]:
    """One page, and an opaque cursor to the next. The cursor names the last session shown, so it survives changes."""
    start = 0
    if cursor is not None:
        last = _decoded(cursor)
        ids = [info["sessionId"] for info in sessions]
        start = ids.index(last) + 1 if last in ids else 0
    chunk = list(sessions[start : start + PAGE])
    more = start + PAGE < len(sessions)
    return {"sessions": chunk, **({"nextCursor": _encoded(chunk[-1]["sessionId"])} if more else {})}


def _encoded(session_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps(["asnap", session_id]).encode()).decode()


def _decoded(cursor: Any) -> str:
    try:
        mark, session_id = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, TypeError) as error:
        raise BadCursor(str(cursor)) from error
    if mark != "asnap" or not isinstance(session_id, str):
        raise BadCursor(str(cursor))
    return session_id
