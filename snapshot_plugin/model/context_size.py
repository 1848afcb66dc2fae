"""An estimate of the context size of a session, for agents that do not report it."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["estimated_tokens", "message_tokens"]

_CHARS_PER_TOKEN = 4
"""Typical for English text and code with common tokenizers; accurate to about a third, which is enough here."""


def estimated_tokens(snapshot: SessionSnapshot) -> int:
    """An estimate of the tokens of the conversation, including tool calls and results, without images."""
    counted = sum(message_tokens(message) for message in snapshot.messages)
    prompt = len(snapshot.config.system_prompt or "") + len(snapshot.config.instructions or "")
    return counted + prompt // _CHARS_PER_TOKEN


def message_tokens(message: Message) -> int:
    """The tokens of a message: its own count if it has one, else an estimate from its text."""
    if message.token_count is not None:
        return message.token_count
    tools = [block for block in message.content if isinstance(block, ToolCallBlock)]
    used = sum(len(tool.title) + _characters([tool.raw_input, tool.raw_output or tool.content]) for tool in tools)
    return (len(message.text) + used) // _CHARS_PER_TOKEN


def _characters(value: Any) -> int:
    total, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            waiting += item
    return total
