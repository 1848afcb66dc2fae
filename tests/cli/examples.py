"""Sessions to try commands on, and the check that an answer is what its schema says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema

from snapshot_plugin import Message, SessionSnapshot
from snapshot_plugin.operations.document import Document

START = datetime(2026, 11, 1, 12, tzinfo=UTC)


def session(session_id: str, *words: str, minutes: int = 0, **more: Any) -> SessionSnapshot:
    """A session of one question and answer for each of *words*."""
    messages = [
        message
        for word in words or ("hello",)
        for message in (Message(role="user", content=word), Message(role="assistant", content=f"{word}, indeed"))
    ]
    moment = START + timedelta(minutes=minutes)
    return SessionSnapshot(session_id=session_id, created_at=START, updated_at=moment, messages=messages, **more)


def valid(kind: type[Document], document: dict[str, Any]) -> dict[str, Any]:
    """The document, which fits the schema of its kind."""
    jsonschema.validate(document, kind.json_schema(), cls=jsonschema.Draft202012Validator)
    return document
