"""Items of the OpenAI Responses API as messages of a session, and back.

Words, thoughts, tool calls and results are readable; every other field of an item is in ``metadata.openai``. An
item that the mapping would not give back exactly is kept as it is and hidden from people. Items are plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.frameworks.conversations import is_exact_json, mapped_exactly, raw_of
from snapshot_plugin.model.content import TextBlock, ThoughtBlock, ToolCallBlock, parse_block
from snapshot_plugin.model.frozen import freeze, thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["item_of", "message_of"]

_FIELD = "openai"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


def message_of(item: Any) -> Message:
    """An item as a message.

    Raises:
        TypeError: JSON cannot carry the item.
        InvalidInput: it holds a NaN or an infinity, or is nested too deeply.
    """
    exact = item if is_exact_json(item) else json.loads(json.dumps(item))
    return mapped_exactly(_FIELD, exact, _mapped, item_of)


def item_of(message: Message) -> Any:
    """The item that *message* was made of; each call makes a new one."""
    if not message.content and (raw := raw_of(_FIELD, message)) is not None:
        return raw
    about = message.metadata[_FIELD]
    rest = thaw(about["rest"])
    return {**_READ[about["kind"]](message, rest.pop("parts", None)), **rest}


def _mapped(item: Any) -> Message | None:
    kind = item.get("type", "message")
    if kind == "message" and item.get("role") in _ROLES:
        return _said(item)
    if kind == "function_call":
        return _called(item)
    if kind == "function_call_output":
        return _answered(item)
    if kind == "reasoning":
        return _thought(item)
    return None


def _message(role: Role, kind: str, rest: Mapping[str, Any], content: list[Any], **more: Any) -> Message:
    about = freeze({_FIELD: {"kind": kind, "rest": rest}, **more})  # once; its depth is known
    return Message(role=role, content=content, metadata=about)


def _without(item: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in names}


# Messages -------------------------------------------------------------------------------------------------


def _said(item: dict[str, Any]) -> Message | None:
    rest, content = _without(item, "content"), item["content"]
    if isinstance(content, str):
        return _message(_ROLES[item["role"]], "text", rest, [TextBlock(text=content)])
    blocks = [_block(part) for part in content]
    rest["parts"] = [_without(part, "text") if "text" in part else None for part in content]
    return _message(_ROLES[item["role"]], "parts", rest, blocks) if blocks else None


def _block(part: dict[str, Any]) -> Any:
    return TextBlock(text=part["text"]) if "text" in part else parse_block(part)


def _read_parts(message: Message, parts: Any) -> list[Any]:
    return [
        thaw(block.raw()) if part is None else {**part, "text": getattr(block, "text", None)}
        for block, part in zip(message.content, parts, strict=True)
    ]


# Tools and thoughts ---------------------------------------------------------------------------------------


def _called(item: dict[str, Any]) -> Message:
    block = ToolCallBlock(tool_call_id=item["call_id"], title=item["name"], raw_input=item["arguments"])
    return _message("assistant", "call", _without(item, "call_id", "name", "arguments"), [block])


def _read_call(message: Message, _: Any) -> dict[str, Any]:
    block = message.content[0]
    if not isinstance(block, ToolCallBlock):
        raise InvalidSnapshot("a tool call's message holds no tool call")
    return {"call_id": block.tool_call_id, "name": block.title, "arguments": block.raw_input}


def _answered(item: dict[str, Any]) -> Message | None:
    output = item["output"]
    if not isinstance(output, str):
        return None
    rest = _without(item, "output", "call_id")
    return _message("tool", "answer", rest, [TextBlock(text=output)], tool_call_id=item["call_id"])


def _thought(item: dict[str, Any]) -> Message | None:
    blocks = [ThoughtBlock(text=part["text"]) for part in item["summary"]]
    rest = {**_without(item, "summary"), "parts": [_without(part, "text") for part in item["summary"]]}
    return _message("assistant", "thought", rest, blocks) if blocks else None


_READ: dict[str, Callable[[Message, Any], dict[str, Any]]] = {
    "text": lambda message, _: {"content": message.text},
    "parts": lambda message, parts: {"content": _read_parts(message, parts)},
    "call": _read_call,
    "answer": lambda message, _: {"call_id": message.metadata["tool_call_id"], "output": message.text},
    "thought": lambda message, parts: {"summary": _read_parts(message, parts)},
}
"""How the readable fields of each kind of item come back."""
