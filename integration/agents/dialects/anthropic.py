"""Anthropic messages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from integration.agents.dialects.turns import Call, Tool, Turn, latest, sse, text_of

__all__ = ["events", "speaks", "turn", "whole"]

Json = dict[str, Any]


def speaks(path: str) -> bool:
    """Whether a request to *path* asks for a message."""
    return path.endswith("/messages")


def turn(body: Json) -> Turn:
    """Read a request. A user message may hold tool results and words; the results come first."""
    said: list[tuple[str, bool]] = []
    for message in body.get("messages") or []:
        if message.get("role") == "user":
            blocks = message.get("content")
            results = not isinstance(blocks, str) and any(block.get("type") == "tool_result" for block in blocks)
            said.append((text_of(blocks), results))
    tools = tuple(
        Tool(tool["name"], tool.get("input_schema") or {}) for tool in body.get("tools") or [] if "name" in tool
    )
    return Turn(*latest(said), tools, text_of(body.get("system")))


def events(pieces: Iterable[str], call: Call | None, tokens: int) -> Iterator[str]:
    """A streamed answer to a request of *tokens*."""
    yield _event("message_start", message=_message([], tokens))
    yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for piece in pieces:
        yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    yield _event("content_block_stop", index=0)
    if call:
        yield _event("content_block_start", index=1, content_block={**_call(call), "input": {}})
        arguments = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        yield _event("content_block_delta", index=1, delta=arguments)
        yield _event("content_block_stop", index=1)
    reason = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    yield _event("message_delta", delta=reason, usage={"output_tokens": 10})
    yield _event("message_stop")


def whole(pieces: Iterable[str], call: Call | None, tokens: int) -> Json:
    """The answer in one piece."""
    content: list[Json] = [{"type": "text", "text": "".join(pieces)}]
    if call:
        content.append(_call(call))
    return {**_message(content, tokens), "stop_reason": "tool_use" if call else "end_turn"}


def _message(content: list[Json], tokens: int) -> Json:
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": "fake-model",
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": tokens, "output_tokens": 1},
    }


def _call(call: Call) -> Json:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}


def _event(kind: str, **fields: Any) -> str:
    return sse({"type": kind, **fields}, kind)
