"""A small reducer and sessions to test `live` with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from snapshot_plugin import Message, SessionSnapshot
from snapshot_plugin.live.label import apply_label

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
PATIENCE = 60.0


LONG = 1000
"""Characters after which a reducer wants to be saved."""


class Said:
    """A reducer of ``{"say": text}``. A turn runs from ``{"ask": text}`` to the next ``say``."""

    def __init__(self, base: SessionSnapshot) -> None:
        self._base = base
        self.running = self.is_long = False

    def apply(self, event: Mapping[str, Any]) -> None:
        self.is_long = len(event.get("say", "")) > LONG
        if "ask" in event:
            self.running = True
            self._base = self._base.append(Message(role="user", content=event["ask"]))
        if "say" in event or "interrupted" in event:
            self.running = False
            text = event.get("say") or f"({event['interrupted']})"
            self._base = self._base.append(Message(role="assistant", content=text))
        if "label" in event:
            self._base = apply_label(self._base, event["label"])
        if "current_task" in event:
            self._base = self._base.evolve(current_task=event["current_task"] or None)

    def snapshot(self, now: datetime) -> SessionSnapshot:
        return self._base.evolve(updated_at=now)


def blank(session_id: str = "s") -> SessionSnapshot:
    return SessionSnapshot(session_id=session_id, created_at=NOW, updated_at=NOW, provider_type="said")


def reduce_said(snapshot: SessionSnapshot, records: Any) -> SessionSnapshot:
    """For recovery."""
    said = Said(snapshot.evolve(provider_type="said"))
    for record in records:
        said.apply(record.data)
    return said.snapshot(snapshot.updated_at)


def texts(snapshot: SessionSnapshot) -> list[str]:
    return [message.text for message in snapshot.messages]
