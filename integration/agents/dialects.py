"""Two dialects of the same model: chat completions and responses. Pure: requests in, events out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Call", "Tool", "Turn", "chat_events", "chat_turn", "responses_events", "responses_turn"]

Json = dict[str, Any]


class Tool(NamedTuple):
    """A tool the agent offers to the model."""

    name: str
    schema: Json


class Turn(NamedTuple):
    """What a request is about: the user's last words, whether a tool has answered since, and the tools on offer."""

    words: str
    answered: bool
    tools: tuple[Tool, ...]


class Call(NamedTuple):
    """A tool call the model makes."""

    id: str
    name: str
    arguments: Json


def chat_turn(body: Json) -> Turn:
    """Read a chat-completions request."""
    words, answered = "", False
    for message in body.get("messages") or []:
        if message.get("role") == "user":
            words, answered = _text(message.get("content")), False
        elif message.get("role") == "tool":
            answered = True
    tools = tuple(
        Tool(tool["function"]["name"], tool["function"].get("parameters") or {})
        for tool in body.get("tools") or []
        if tool.get("type") == "function"
    )
    return Turn(words, answered, tools)


def responses_turn(body: Json) -> Turn:
    """Read a responses request."""
    words, answered = "", False
    for item in body.get("input") or []:
        if item.get("role") == "user":
            words, answered = _text(item.get("content")), False
        elif str(item.get("type", "")).endswith("_output"):
            answered = True
    tools = tuple(
        Tool(tool["name"], tool.get("parameters") or {})
        for tool in body.get("tools") or []
        if tool.get("type") == "function"
    )
    return Turn(words, answered, tools)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or [] if isinstance(part.get("text"), str))


def chat_events(pieces: Iterator[str], call: Call | None) -> Iterator[str]:
    """The stream of a chat completion, one SSE event at a time."""
    for piece in pieces:
        yield _chat({"role": "assistant", "content": piece}, None)
    if call:
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        yield _chat({"tool_calls": [{"index": 0, "id": call.id, "type": "function", "function": function}]}, None)
    yield _chat({}, "tool_calls" if call else "stop")
    yield "data: [DONE]\n\n"


def _chat(delta: Json, finish: str | None) -> str:
    chunk = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "fake-model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    if finish:
        chunk["usage"] = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    return f"data: {json.dumps(chunk)}\n\n"


def responses_events(pieces: Iterator[str], call: Call | None) -> Iterator[str]:
    """The stream of a response, one SSE event at a time. Agents take what has an old id for the old message."""
    number = uuid.uuid4().hex
    yield _event("response.created", response={"id": f"resp-{number}"})
    message: Json = {"type": "message", "id": f"msg-{number}", "role": "assistant", "content": []}
    yield _event("response.output_item.added", output_index=0, item=message)
    said = []
    for piece in pieces:
        said.append(piece)
        yield _event(
            "response.output_text.delta", item_id=message["id"], output_index=0, content_index=0, delta=piece
        )
    done = {**message, "content": [{"type": "output_text", "text": "".join(said)}]}
    yield _event("response.output_item.done", output_index=0, item=done)
    if call:
        yield from _response_call(call)
    usage = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}
    yield _event("response.completed", response={"id": f"resp-{number}", "output": [], "usage": usage})


def _response_call(call: Call) -> Iterator[str]:
    item_id, arguments = f"fc-{call.id}", json.dumps(call.arguments)
    item = {"type": "function_call", "id": item_id, "call_id": call.id, "name": call.name}
    yield _event("response.output_item.added", output_index=1, item={**item, "arguments": ""})
    yield _event("response.function_call_arguments.delta", item_id=item_id, output_index=1, delta=arguments)
    yield _event("response.function_call_arguments.done", item_id=item_id, output_index=1, arguments=arguments)
    yield _event("response.output_item.done", output_index=1, item={**item, "arguments": arguments})


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
