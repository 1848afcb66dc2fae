"""Messages as an agent can read them: text without secrets, with thoughts, tools and attachments in brackets."""

from __future__ import annotations

from typing import Final

from snapshot_plugin.memory.server.answers import MessageView
from snapshot_plugin.model.content import Block, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.redact import redact
from snapshot_plugin.model.snapshot import Message

__all__ = ["excerpt_of", "readable", "viewed"]

_LONGEST: Final = 4000
_AROUND: Final = 80


def viewed(index: int, message: Message) -> MessageView:
    """One message, cut where it is very long."""
    text = readable(message)
    return MessageView(
        index=index,
        role=message.role,
        text=text[:_LONGEST],
        timestamp=message.timestamp,
        shortened=len(text) > _LONGEST,
    )


def readable(message: Message) -> str:
    """All that a message says and does, as text. Secrets are taken out before anything is cut."""
    text: str = redact("\n".join(filter(None, map(_block, message.content))))[0]
    return text


def _block(block: Block) -> str:
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ThoughtBlock):
        return f"[thought] {block.text}"
    if isinstance(block, ToolCallBlock):
        return f"[tool {block.status or 'started'}] {block.title or block.kind or block.tool_call_id}"
    return f"[{block.type or 'unknown'}]"


def excerpt_of(text: str, words: list[str]) -> str:
    """The text around the first place where one of *words* (in lower case) is; else its beginning."""
    folded = text.casefold()
    places = [(folded.find(word), len(word)) for word in words if word in folded]
    place, length = min(places, default=(0, 0))
    start, end = max(0, place - _AROUND), place + length + _AROUND
    return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"
