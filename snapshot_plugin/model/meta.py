"""What can be told about a stored snapshot without opening its conversation."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from snapshot_plugin.model.snapshot import CURRENT_VERSION, Parent, SessionSnapshot
from snapshot_plugin.model.value import Timestamp, Value, rfc3339

__all__ = ["SnapshotMeta", "SnapshotRef", "SnapshotState", "summary_of"]

SnapshotState = Literal["ok", "damaged", "encrypted"]


class SnapshotRef(Value):
    """The receipt of a save: this snapshot is durable, under this number, with this content digest.

    Pin ``(seq, root)`` outside the store to notice a rollback of its tail. `notices` names limits that were
    passed; nothing was cut.
    """

    session_id: str
    seq: int
    root: str
    size_bytes: int
    written: bool = True
    notices: tuple[str, ...] = ()


class SnapshotMeta(Value):
    """One stored snapshot, as lists show it. A damaged or locked one is listed as such, never left out."""

    session_id: str
    seq: int
    saved_at: Timestamp
    state: SnapshotState = "ok"
    problem: str | None = None
    root: str = ""
    version: int = CURRENT_VERSION
    trigger: str = "manual"
    snapshot_tags: tuple[str, ...] = ()
    size_bytes: int = 0
    created_at: Timestamp | None = None
    updated_at: Timestamp | None = None
    title: str | None = None
    agent: str | None = None
    provider_type: str | None = None
    cwd: str | None = None
    tags: tuple[str, ...] = ()
    pinned: bool = False
    parent: Parent | None = None
    messages: int = 0
    turns: int = 0
    tokens: int = 0
    cost: float | None = None

    @property
    def sort_key(self) -> datetime:
        """Newest first sorts by this: when the session last changed, or else when it was saved."""
        return self.updated_at or self.saved_at


def summary_of(snapshot: SessionSnapshot) -> dict[str, Any]:
    """The part of `SnapshotMeta` that comes from the content; every frame repeats it, so lists read one frame."""
    listed = {
        "created_at": rfc3339(snapshot.created_at),
        "updated_at": rfc3339(snapshot.updated_at),
        "title": snapshot.title,
        "agent": snapshot.agent.name if snapshot.agent else None,
        "provider_type": snapshot.provider_type,
        "cwd": snapshot.config.cwd,
        "tags": list(snapshot.tags),
        "pinned": snapshot.pinned,
        "parent": snapshot.parent.raw() if snapshot.parent else None,
        "messages": len(snapshot.messages),
        "turns": snapshot.metrics.turns,
        "tokens": snapshot.metrics.total_tokens,
        "cost": snapshot.metrics.cost,
    }
    return {name: value for name, value in listed.items() if value or value == ""}
