"""What the record of a session tells about its agent: how full its context was, what it can load, how it came back.

Pure readers of what the recorder notes in the snapshot's metadata; None where it noted nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["ContextWindow", "context_window", "expected_grade", "last_restore"]


class ContextWindow(NamedTuple):
    """Tokens in the model's context, and how many it holds, as the agent last said."""

    used: int
    size: int


def context_window(snapshot: SessionSnapshot) -> ContextWindow | None:
    """How full the context was at the end."""
    context = _noted(snapshot, "context")
    used, size = context.get("used"), context.get("size")
    return ContextWindow(used, size) if isinstance(used, int) and isinstance(size, int) else None


def last_restore(snapshot: SessionSnapshot) -> Mapping[str, Any] | None:
    """The report of the last time the session was brought back: grade, messages, tried, notices, differences."""
    return _noted(snapshot, "restored") or None


def expected_grade(snapshot: SessionSnapshot) -> str | None:
    """The grade with which the recorded agent can bring the session back at best; None if it never said."""
    can = _noted(snapshot, "capabilities")
    if not can or not snapshot.agent_session_id:
        return None
    if can.get("load") is True:
        return "native-load"
    return "native-resume" if can.get("resume") is True else "context"


def _noted(snapshot: SessionSnapshot, name: str) -> Mapping[str, Any]:
    acp = snapshot.metadata.get("acp")
    value = acp.get(name) if isinstance(acp, dict) else None
    return value if isinstance(value, dict) else {}
