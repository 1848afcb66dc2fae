"""OpenAI chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from integration.agents.dialects.turns import Call, Tool, Turn, latest, sse, text_of

__all__ = ["events", "speaks", "turn", "whole"]

Json = dict[str, Any]
_HEAD = {"id": "chatcmpl-scripted", "created": 1, "model": "fake-model"}


def speaks(path: str) -> bool:
    """Whether a request to *path* is a chat completion."""
    return path.endswith("/chat/completions")


def turn(body: Json) -> Turn:
    """Read a request."""
    messages = body.get("messages") or []
    said = (
        (text_of(each.get("content")) if each.get("role") == "user" else "", each.get("role") == "tool")
        for each in messages
    )
    tools = tuple(
        Tool(tool["function"]["name"], tool["function"].get("parameters") or {})
        for tool in body.get("tools") or []
        if tool.get("type") == "function"
    )
    system = "\n".join(text_of(each.get("content")) for each in messages if each.get("role") == "system")
    return Turn(*latest(said), tools, system)


def events(pieces: Iterable[str], call: Call | None, tokens: int) -> Iterator[str]:
    """A streamed answer to a request of *tokens*."""
    for piece in pieces:
        yield _chunk({"role": "assistant", "content": piece}, None)
    if call:
        yield _chunk({"tool_calls": [{"index": 0, **_call(call)}]}, None)
    yield _chunk({}, "tool_calls" if call else "stop", tokens)
    yield "data: [DONE]\n\n"


def whole(pieces: Iterable[str], call: Call | None, tokens: int) -> Json:
    """The answer in one piece."""
    message: Json = {"role": "assistant", "content": "".join(pieces)}
    if call:
        message["tool_calls"] = [_call(call)]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
    return {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _usage(tokens)}


def _call(call: Call) -> Json:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
    }


def _chunk(delta: Json, finish: str | None, tokens: int = 0) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    usage = {"usage": _usage(tokens)} if finish else {}
    return sse({**_HEAD, "object": "chat.completion.chunk", "choices": [choice], **usage})


def _usage(tokens: int) -> Json:
    return {"prompt_tokens": tokens, "completion_tokens": 10, "total_tokens": tokens + 10}
