"""Events of Google's ADK (as their own JSON) as messages of a session, and back.

Words, thoughts, function calls and responses are readable; every other field is in ``metadata.google_adk``. An
event that the mapping would not give back exactly is kept as it is and hidden from people.
"""

from __future__ import annotations

from typing import Any

from snapshot_plugin.frameworks.conversations import mapped_exactly, raw_of, with_floats
from snapshot_plugin.model.content import TextBlock, ThoughtBlock, ToolCallBlock, UnknownBlock
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["json_of", "message_of"]

_FIELD = "google_adk"
_CALL, _RESPONSE = "function_call", "function_response"


def message_of(data: dict[str, Any]) -> Message:
    """An event as a message; its id is the message's id.

    Raises:
        InvalidInput: JSON cannot carry it.
    """
    kept = {name: value for name, value in data.items() if name != "id"}
    return mapped_exactly(_FIELD, kept, _mapped, _json_without_id).evolve(id=data["id"])


def json_of(message: Message) -> dict[str, Any]:
    """The JSON that *message* was made of."""
    return {**_json_without_id(message), "id": message.id}


def _json_without_id(message: Message) -> dict[str, Any]:
    if not message.content and (raw := raw_of(_FIELD, message)) is not None:
        return dict(raw)
    data: dict[str, Any] = thaw(message.metadata[_FIELD])
    rests = data["content"]["parts"]
    data["content"]["parts"] = [_part(block, rest) for block, rest in zip(message.content, rests, strict=True)]
    if (usage := message.metadata.get("usage")) is not None:
        data["usage_metadata"] = _usage_of(thaw(usage))
    return dict(with_floats(data, message.metadata))


def _mapped(data: dict[str, Any]) -> Message:
    content = data["content"]
    parts = content["parts"]
    kept = {name: value for name, value in data.items() if name != "usage_metadata"}
    kept["content"] = {**content, "parts": [_rest(part) for part in parts]}
    metadata: dict[str, Any] = {_FIELD: kept}
    if "usage_metadata" in data:
        metadata["usage"] = _named(data["usage_metadata"])
    return Message(role=_role(data, parts), content=[_block(part) for part in parts], metadata=metadata)


def _role(data: dict[str, Any], parts: list[dict[str, Any]]) -> Role:
    if all(_RESPONSE in part for part in parts):
        return "tool"
    return "user" if data["author"] == "user" else "assistant"


_TOKENS = {"prompt_token_count": "input_tokens", "candidates_token_count": "output_tokens"}


def _named(usage: dict[str, Any]) -> dict[str, Any]:
    """Token counts under the names that all adapters use."""
    return {_TOKENS.get(name, name): value for name, value in usage.items()}


def _usage_of(usage: dict[str, Any]) -> dict[str, Any]:
    back = {ours: theirs for theirs, ours in _TOKENS.items()}
    return {back.get(name, name): value for name, value in usage.items()}


def _kind(part: dict[str, Any]) -> str:
    return next((kind for kind in ("text", _CALL, _RESPONSE) if kind in part), "")


def _block(part: dict[str, Any]) -> Any:
    kind = _kind(part)
    if kind == "text":
        return (ThoughtBlock if part.get("thought") else TextBlock)(text=part["text"])
    if kind == _CALL:
        call = part[_CALL]
        return ToolCallBlock(tool_call_id=call["id"], title=call["name"], raw_input=call["args"])
    if kind == _RESPONSE:
        given = part[_RESPONSE]
        return ToolCallBlock(
            tool_call_id=given["id"], title=given["name"], status="completed", raw_output=given["response"]
        )
    return UnknownBlock(type="google-adk/part", part=part)


def _rest(part: dict[str, Any]) -> dict[str, Any] | None:
    kind = _kind(part)
    if not kind:
        return None
    outer = {name: value for name, value in part.items() if name != kind}
    if kind == "text":
        return {"kind": kind, "outer": outer}
    gone = ("id", "name", "args" if kind == _CALL else "response")
    inner = {name: value for name, value in part[kind].items() if name not in gone}
    return {"kind": kind, "outer": outer, "inner": inner}


def _part(block: Any, rest: dict[str, Any] | None) -> dict[str, Any]:
    if rest is None:
        return dict(thaw(block.raw()["part"]))
    kind = rest["kind"]
    if kind == "text":
        return {**rest["outer"], "text": block.text}
    value = {"args": thaw(block.raw_input)} if kind == _CALL else {"response": thaw(block.raw_output)}
    return {**rest["outer"], kind: {**rest["inner"], "id": block.tool_call_id, "name": block.title, **value}}
