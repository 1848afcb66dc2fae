"""Messages in the form of version 1: content in blocks, times in UTC, null fields removed."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.migrate.fields import Raw, as_object, utc_text

__all__ = ["read_messages"]

_OPTIONAL = ("id", "timestamp", "token_count", "tool_calls", "metadata")


def read_messages(raw: list[Any]) -> list[Raw]:
    """Messages with ``content`` as a list of blocks and ``timestamp`` in UTC; other fields stay as they are."""
    return [_read(as_object(message, f"messages[{i}]"), f"messages[{i}]") for i, message in enumerate(raw)]


def _read(message: Raw, path: str) -> Raw:
    for name in _OPTIONAL:
        if name in message and message[name] is None:
            del message[name]
    if "timestamp" in message:
        message["timestamp"] = utc_text(message["timestamp"], f"{path}.timestamp")
    message["content"] = _blocks(message.get("content"), f"{path}.content")
    return message


def _blocks(content: Any, path: str) -> list[Any]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise InvalidSnapshot(f"{path} is neither text nor a list of blocks")
    return content
