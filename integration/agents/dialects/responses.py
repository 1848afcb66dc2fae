"""OpenAI responses. Every message has an id of its own: agents take an old id for the old message."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from integration.agents.dialects.turns import Call, Tool, Turn, latest, sse, text_of

__all__ = ["events", "speaks", "turn", "whole"]

Json = dict[str, Any]


def speaks(path: str) -> bool:
    """Whether a request to *path* is a response."""
    return path.endswith("/responses")


def turn(body: Json) -> Turn:
    """Read a request."""
    said = (
        (
            text_of(item.get("content")) if item.get("role") == "user" else "",
            str(item.get("type", "")).endswith("_output"),
        )
        for item in body.get("input") or []
    )
    tools = tuple(
        Tool(tool["name"], tool.get("parameters") or {})
        for tool in body.get("tools") or []
        if tool.get("type") == "function"
    )
    return Turn(*latest(said), tools, str(body.get("instructions") or ""))


def events(pieces: Iterable[str], call: Call | None, tokens: int) -> Iterator[str]:
    """A streamed answer to a request of *tokens*."""
    number = uuid.uuid4().hex
    yield _event("response.created", response={"id": f"resp-{number}"})
    message = _message(f"msg-{number}", "")
    yield _event("response.output_item.added", output_index=0, item={**message, "content": []})
    said = []
    for piece in pieces:
        said.append(piece)
        place = {"item_id": message["id"], "output_index": 0, "content_index": 0}
        yield _event("response.output_text.delta", **place, delta=piece)
    yield _event("response.output_item.done", output_index=0, item=_message(message["id"], "".join(said)))
    if call:
        yield from _call_events(call)
    yield _event("response.completed", response={"id": f"resp-{number}", "output": [], "usage": _usage(tokens)})


def whole(pieces: Iterable[str], call: Call | None, tokens: int) -> Json:
    """The answer in one piece."""
    output = [_message(f"msg-{uuid.uuid4().hex}", "".join(pieces))]
    if call:
        output.append(_call(call))
    return {"id": f"resp-{uuid.uuid4().hex}", "object": "response", "output": output, "usage": _usage(tokens)}


def _message(message_id: str, text: str) -> Json:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "id": message_id, "role": "assistant", "content": content}


def _call(call: Call) -> Json:
    named = {"type": "function_call", "id": f"fc-{call.id}", "call_id": call.id, "name": call.name}
    return {**named, "arguments": json.dumps(call.arguments)}


def _call_events(call: Call) -> Iterator[str]:
    item = _call(call)
    place = {"item_id": item["id"], "output_index": 1}
    yield _event("response.output_item.added", output_index=1, item={**item, "arguments": ""})
    yield _event("response.function_call_arguments.delta", **place, delta=item["arguments"])
    yield _event("response.function_call_arguments.done", **place, arguments=item["arguments"])
    yield _event("response.output_item.done", output_index=1, item=item)


def _event(kind: str, **fields: Any) -> str:
    return sse({"type": kind, **fields}, kind)


def _usage(tokens: int) -> Json:
    return {"input_tokens": tokens, "output_tokens": 10, "total_tokens": tokens + 10}
