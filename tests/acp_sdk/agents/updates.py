"""What agents tell their clients, made of the schema alone: the SDK's helpers for it are not in every release."""

from __future__ import annotations

from typing import Any

from acp.schema import AgentMessageChunk, TextContentBlock, ToolCallProgress, ToolCallStart, UserMessageChunk

__all__ = ["agent_says", "text_block", "tool_begins", "tool_goes_on", "user_said"]


def text_block(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)


def agent_says(text: str) -> AgentMessageChunk:
    return AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text))


def user_said(text: str) -> UserMessageChunk:
    return UserMessageChunk(session_update="user_message_chunk", content=text_block(text))


def tool_begins(call_id: str, title: str, **more: Any) -> ToolCallStart:
    return ToolCallStart(session_update="tool_call", tool_call_id=call_id, title=title, **more)


def tool_goes_on(call_id: str, **more: Any) -> ToolCallProgress:
    return ToolCallProgress(session_update="tool_call_update", tool_call_id=call_id, **more)
