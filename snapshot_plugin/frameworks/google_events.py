"""Events of Google's ADK (as their own JSON) as messages of a session, and back.

Words, thoughts, function calls and responses are readable; every other field is in ``metadata.google_adk``. An
event that the mapping would not give back exactly is kept as it is and hidden from people.
"""

from __future__ import annotations

from typing import Any

from snapshot_plugin.frameworks.conversations import mapped_exactly, raw_of, with_floats
from snapshot_plugin.frameworks.parts import PartMap, ShownAs
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["json_of", "message_of"]

_FIELD = "google_adk"
_CALL, _RESPONSE = "function_call", "function_response"
_NAMED = {"id": "toolCallId", "name": "title"}
_PARTS = PartMap(
    lambda part: str(part["kind"]),
    {
        "text": ShownAs("text", {"text": "text"}),
        "thought": ShownAs("thought", {"text": "text"}),
        _CALL: ShownAs("tool_call", {**_NAMED, "args": "rawInput"}),
        _RESPONSE: ShownAs("tool_call", {**_NAMED, "response": "rawOutput"}, lambda _: "completed"),
    },
    prefix="google-adk/",
)


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
    parts = _PARTS.parts([block.raw() for block in message.content], data["content"]["parts"])
    data["content"]["parts"] = [_part_of(part) for part in parts]
    if (usage := message.metadata.get("usage")) is not None:
        data["usage_metadata"] = _usage_of(thaw(usage))
    return dict(with_floats(data, message.metadata))


def _mapped(data: dict[str, Any]) -> Message:
    content = data["content"]
    blocks, rests = _PARTS.blocks([_flat(part) for part in content["parts"]])
    kept = {name: value for name, value in data.items() if name != "usage_metadata"}
    kept["content"] = {**content, "parts": rests}
    metadata: dict[str, Any] = {_FIELD: kept}
    if "usage_metadata" in data:
        metadata["usage"] = _named(data["usage_metadata"])
    role = _role(data, content["parts"])
    return Message.model_validate({"role": role, "content": blocks, "metadata": metadata})


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


def _flat(part: dict[str, Any]) -> dict[str, Any]:
    """*part* with the fields of its call or response beside its kind."""
    kind = next((kind for kind in ("text", _CALL, _RESPONSE) if kind in part), "")
    if not kind:
        return {"kind": "part", **part}
    outer = {name: value for name, value in part.items() if name != kind}
    if kind == "text":
        return {"kind": "thought" if part.get("thought") else kind, "outer": outer, kind: part[kind]}
    return {"kind": kind, "outer": outer, **part[kind]}


def _part_of(flat: dict[str, Any]) -> dict[str, Any]:
    kind = flat.pop("kind")
    if kind == "part":
        return flat
    outer: dict[str, Any] = flat.pop("outer")
    return {**outer, **(flat if kind in ("text", "thought") else {kind: flat})}
