"""Short ways to write what an agent sends and what the record shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from snapshot_plugin import SessionSnapshot
from snapshot_plugin.acp.reducer import AcpReducer, reduce_events
from snapshot_plugin.model import ToolCallBlock

__all__ = [
    "BLANK",
    "NOW",
    "blocks",
    "calls",
    "prompt",
    "recorded",
    "recording",
    "said",
    "stop",
    "text",
    "tool",
    "update",
]

Event = dict[str, Any]
NOW = datetime(2026, 11, 16, tzinfo=UTC)
BLANK = SessionSnapshot(session_id="s", created_at=NOW, updated_at=NOW, provider_type="acp")


def text(words: str) -> Event:
    return {"type": "text", "text": words}


def prompt(*words: str) -> Event:
    return {"prompt": [text(word) for word in words], "t": "2026-11-16T00:00:01Z"}


def update(kind: str, **fields: Any) -> Event:
    return {"update": {"sessionUpdate": kind, **fields}}


def said(words: str, kind: str = "agent_message_chunk", **fields: Any) -> Event:
    return update(kind, content=text(words), **fields)


def tool(call_id: str, variant: str = "tool_call_update", **fields: Any) -> Event:
    return {"update": {"sessionUpdate": variant, "toolCallId": call_id, **fields}}


def stop(reason: str = "end_turn", **fields: Any) -> Event:
    return {"stop": {"stopReason": reason, **fields}, "t": "2026-11-16T00:00:02Z"}


def recorded(*events: Mapping[str, Any], base: SessionSnapshot = BLANK) -> SessionSnapshot:
    return reduce_events(base, events, NOW)


def recording(*events: Mapping[str, Any], base: SessionSnapshot = BLANK) -> AcpReducer:
    live = AcpReducer(base)
    for event in events:
        live.apply(event)
    return live


def blocks(snapshot: SessionSnapshot) -> list[list[Any]]:
    """The messages as plain JSON, block by block."""
    return [[block.raw() for block in message.content] for message in snapshot.messages]


def calls(snapshot: SessionSnapshot) -> list[ToolCallBlock]:
    return [b for message in snapshot.messages for b in message.content if isinstance(b, ToolCallBlock)]
