"""What the session methods do with live sessions; may block."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from snapshot_plugin.acp.messages import Message
from snapshot_plugin.acp.state import agent_names
from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import Trashed

if TYPE_CHECKING:
    from snapshot_plugin.live.sessions import LiveSessions

__all__ = ["PROVIDER", "begin", "begun", "deleted", "deleted_names", "ensure_recorded", "names_of"]

PROVIDER = "acp"
_NAMES = "acp.names"


def begin(sessions: LiveSessions, session_id: str, first: Message) -> str | None:
    """Record a new session; why that does not succeed yet, if it does not."""
    now = sessions.clock()
    blank = SessionSnapshot(session_id=session_id, created_at=now, updated_at=now, provider_type=PROVIDER)
    live = sessions.begin(blank, {"provider_type": PROVIDER, **first})
    return str(live.trouble) if live.trouble is not None else None


def begun(sessions: LiveSessions, agent_id: str, first: Message) -> tuple[str, str | None]:
    """Our id of a new session, and why it is not recorded. A taken id is replaced: agents count from 0."""
    try:
        if not _is_taken(sessions, agent_id):
            return agent_id, begin(sessions, agent_id, first)
    except (SnapshotError, ValueError):
        pass  # another process has just begun one of that id, or it cannot be an id of ours
    session_id = new_id()
    return session_id, begin(sessions, session_id, first)


def _is_taken(sessions: LiveSessions, session_id: str) -> bool:
    try:
        return sessions.has(session_id)
    except (SnapshotError, OSError):
        return False  # the failure to record is reported below


def ensure_recorded(live: Any) -> None:
    """Raise what keeps a session from being recorded."""
    if live.trouble is not None:
        raise live.trouble


def deleted(sessions: LiveSessions, session_id: str, names: Sequence[str]) -> Trashed | None:
    """Move a session to the trash, with the agent's *names* of it; None if there is none."""
    sessions.finish(session_id)  # with its last save: what is in the trash can be undone
    others = [name for name in names if name != session_id]
    return sessions.delete(session_id, {_NAMES: json.dumps(others)} if others else None)


def deleted_names(sessions: LiveSessions) -> frozenset[str]:
    """The ids of deleted sessions, ours and the agent's."""
    names = [json.loads(labels[_NAMES]) for labels in sessions.labels_in_trash() if _NAMES in labels]
    return sessions.deleted().union(*names)


def names_of(sessions: LiveSessions, session_id: str) -> tuple[str, ...]:
    """The agent's ids of a session, live or stored."""
    try:
        live = sessions.open.get(session_id)
        snapshot = live.snapshot() if live else sessions.newest(session_id).snapshot
    except (SnapshotError, OSError):
        return (session_id,)
    return agent_names(snapshot) or (session_id,)
