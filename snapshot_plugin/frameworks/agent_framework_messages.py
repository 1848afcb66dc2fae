"""Messages of Microsoft's agent-framework (as its own JSON) as messages of a session, and back.

Words, thoughts, function calls and results are readable; every other field is in ``metadata.agent_framework``. A
message that the mapping would not give back exactly is kept as it is and hidden from people.
"""

from __future__ import annotations

from typing import Any

from snapshot_plugin.frameworks.conversations import mapped_exactly, raw_of, with_floats
from snapshot_plugin.model.content import TextBlock, ThoughtBlock, ToolCallBlock, UnknownBlock
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["json_of", "message_of"]

_FIELD = "agent_framework"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}
_READABLE = {
    "text": ("text",),
    "text_reasoning": ("text",),
    "function_call": ("call_id", "name", "arguments"),
    "function_result": ("call_id", "result"),
}
"""The fields of a content that its block holds; all other contents are blocks as they are."""


def message_of(data: dict[str, Any]) -> Message:
    """A message as a message of a session.

    Raises:
        InvalidInput: JSON cannot carry it.
    """
    return mapped_exactly(_FIELD, data, _mapped, json_of)


def json_of(message: Message) -> dict[str, Any]:
    """The JSON that *message* was made of."""
    if not message.content and (raw := raw_of(_FIELD, message)) is not None:
        return dict(raw)
    data: dict[str, Any] = thaw(message.metadata[_FIELD])
    rests = data["contents"]
    data["contents"] = [_content(block, rest) for block, rest in zip(message.content, rests, strict=True)]
    return dict(with_floats(data, message.metadata))


def _mapped(data: dict[str, Any]) -> Message:
    contents = data["contents"]
    kept = {**data, "contents": [_rest(each) for each in contents]}
    blocks = [_block(each) for each in contents]
    return Message(role=_ROLES.get(data["role"], "system"), content=blocks, metadata={_FIELD: kept})


def _block(content: dict[str, Any]) -> Any:
    kind = content["type"]
    if kind == "text":
        return TextBlock(text=content["text"])
    if kind == "text_reasoning":
        return ThoughtBlock(text=content["text"])
    if kind == "function_call":
        return ToolCallBlock(tool_call_id=content["call_id"], title=content["name"], raw_input=content["arguments"])
    if kind == "function_result":
        return ToolCallBlock(tool_call_id=content["call_id"], status="completed", raw_output=content["result"])
    return UnknownBlock(type=f"agent-framework/{kind}", content=content)


def _rest(content: dict[str, Any]) -> dict[str, Any] | None:
    names = _READABLE.get(content["type"])
    return {name: value for name, value in content.items() if name not in names} if names else None


def _content(block: Any, rest: dict[str, Any] | None) -> dict[str, Any]:
    if rest is None:
        return dict(thaw(block.raw()["content"]))
    if not isinstance(block, ToolCallBlock):
        return {**rest, "text": block.text}
    if rest["type"] == "function_call":
        arguments = thaw(block.raw_input)
        return {**rest, "call_id": block.tool_call_id, "name": block.title, "arguments": arguments}
    return {**rest, "call_id": block.tool_call_id, "result": thaw(block.raw_output)}
