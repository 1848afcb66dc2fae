"""A conversation for reading: numbered messages, one line for each tool call. Pure; one message at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from snapshot_plugin.operations.document import Part
from snapshot_plugin.operations.text import size

if TYPE_CHECKING:
    from snapshot_plugin.model.content import Block, ToolCallBlock
    from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["MessagePart", "Said", "about_block", "detail_of", "diff_lines", "said_of"]

_BASE64 = 4 / 3


class MessagePart(Part):
    """A part of a message: its words, a thought, a tool call, or something that is not text."""

    kind: str
    """text, thought, tool, or the type of another block: image, audio, resource, …"""
    text: str = ""
    status: str | None = None
    detail: str | None = None
    """The input and output of a tool; with --tools."""


class Said(Part):
    """One message."""

    number: int
    role: str
    at: datetime | None = None
    pieces: tuple[MessagePart, ...] = ()


def said_of(snapshot: SessionSnapshot, *, tools: bool, first: int = 1, last: int | None = None) -> Iterator[Said]:
    """Yield messages *first* to *last*, counted from 1; with *tools*, also the input and output of tools.

    Entries that only a framework can read are included with *tools* only.
    """
    from snapshot_plugin.model.repair import readable

    messages = snapshot.messages[first - 1 : last]
    shown = dict(readable(messages, snapshot.messages))
    for index, message in enumerate(messages):
        if tools or index in shown:
            yield _said(first + index, shown.get(index, message), tools=tools)


def _said(number: int, message: Message, *, tools: bool) -> Said:
    pieces = tuple(_piece(block, tools=tools) for block in message.content)
    if message.is_opaque:
        pieces = (MessagePart(kind="entry", text=f"kept for {', '.join(message.metadata)}"),)
    return Said(number=number, role=message.role, at=message.timestamp, pieces=pieces)


def _piece(block: Block, *, tools: bool) -> MessagePart:
    from snapshot_plugin.model.content import TextBlock, ThoughtBlock, ToolCallBlock

    if isinstance(block, TextBlock):
        return MessagePart(kind="text", text=block.text)
    if isinstance(block, ThoughtBlock):
        return MessagePart(kind="thought", text=block.text)
    if isinstance(block, ToolCallBlock):
        title = block.title or block.kind or block.tool_call_id
        return MessagePart(kind="tool", text=title, status=block.status, detail=detail_of(block) if tools else None)
    return MessagePart(kind=block.type or "unknown", text=about_block(block.raw()))


def detail_of(tool: ToolCallBlock) -> str:
    """The input and output of a tool, as text."""
    parts = [
        f"{name}: {_as_text(value)}" for name, value in (("in", tool.raw_input), ("out", tool.raw_output)) if value
    ]
    if not tool.raw_output and tool.content:
        parts.append(f"out: {_as_text(tool.content)}")
    return "\n".join(parts)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(_as_text(item) for item in value)
    if isinstance(value, dict):
        inner = value.get("content") if value.get("type") == "content" else value
        if isinstance(inner, dict) and inner.get("type") == "text" and isinstance(inner.get("text"), str):
            return str(inner["text"])
        if value.get("type") == "diff":
            before, after = str(value.get("oldText") or ""), str(value.get("newText") or "")
            return "\n".join([str(value.get("path", "")), *diff_lines(before, after)])
    return json.dumps(value, ensure_ascii=False, indent=2)


def diff_lines(before: str, after: str) -> list[str]:
    """The lines of a unified diff, without the names of the files."""
    import difflib

    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]


def about_block(raw: dict[str, Any]) -> str:
    """What a block that is not text holds, in a few words: its type, its place, its size."""
    resource = raw.get("resource")
    uri = raw.get("uri") or (resource.get("uri") if isinstance(resource, dict) else None)
    data = raw.get("data")
    parts = [raw.get("mimeType"), uri, size(int(len(data) / _BASE64)) if isinstance(data, str) else None]
    return ", ".join(str(part) for part in parts if part)
