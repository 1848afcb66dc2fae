"""Small sessions for tests: the same content each time, without clock and randomness."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from snapshot_plugin.model.snapshot import Message, Role, SessionSnapshot

__all__ = ["make_message", "make_snapshot"]

_WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def make_message(text: str, *, role: Role = "user", **fields: Any) -> Message:
    """A message with one text block; *fields* are further fields of `Message`."""
    return Message(role=role, content=text, **fields)


def make_snapshot(*texts: str, session_id: str = "session", **fields: Any) -> SessionSnapshot:
    """A session with *texts* from user and assistant in turn; *fields* are further fields of `SessionSnapshot`."""
    roles: tuple[Role, Role] = ("user", "assistant")
    said = tuple(make_message(text, role=roles[index % 2]) for index, text in enumerate(texts))
    defaults = {"created_at": _WHEN, "updated_at": _WHEN, "messages": said}
    return SessionSnapshot(session_id=session_id, **{**defaults, **fields})
