"""Messages of pydantic-ai (as its own JSON) as messages of a session, and back.

Prompts, answers, thoughts, tool calls and results are readable; every other field is in ``metadata.pydantic_ai``. A
message that the mapping would not give back exactly is kept as it is and hidden from people.
"""

from __future__ import annotations

from typing import Any

from snapshot_plugin.frameworks.conversations import mapped_exactly, raw_of, with_floats
from snapshot_plugin.model.content import TextBlock, ThoughtBlock, ToolCallBlock, UnknownBlock
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["json_of", "message_of", "model_of", "prompt_of"]

_FIELD = "pydantic_ai"
_TEXTS = frozenset({"user-prompt", "system-prompt", "text", "retry-prompt", "retry-feedback"})


def message_of(data: dict[str, Any], entry_id: str) -> Message:
    """A message with the id of its entry.

    Raises:
        InvalidInput: JSON cannot carry it.
    """
    return mapped_exactly(_FIELD, data, _mapped, json_of).evolve(id=entry_id)


def json_of(message: Message) -> dict[str, Any]:
    """The JSON that *message* was made of."""
    raw = raw_of(_FIELD, message)
    if raw is not None:
        return dict(raw)
    data: dict[str, Any] = thaw(message.metadata[_FIELD])
    data["parts"] = [_part(block, rest) for block, rest in zip(message.content, data["parts"], strict=True)]
    if (usage := message.metadata.get("usage")) is not None:
        data["usage"] = thaw(usage)
    return dict(with_floats(data, message.metadata))


def model_of(message: Message) -> str | None:
    """The model that wrote the message."""
    kept = message.metadata.get(_FIELD)
    model = kept.get("model_name") if isinstance(kept, dict) else None
    return model if isinstance(model, str) else None


def prompt_of(message: Message) -> str:
    """What the user asked, without system prompts in the same message."""
    kept = message.metadata.get(_FIELD)
    parts = kept.get("parts", ()) if isinstance(kept, dict) else ()
    asked = [part is not None and part["part_kind"] == "user-prompt" for part in parts]
    return " ".join(
        getattr(block, "text", "") for block, is_it in zip(message.content, asked, strict=False) if is_it
    )


def _mapped(data: dict[str, Any]) -> Message | None:
    parts = data["parts"]
    if not parts or data["kind"] not in ("request", "response"):
        return None
    kept = {name: value for name, value in data.items() if name not in ("parts", "usage")}
    kept["parts"] = [_rest(part) for part in parts]
    metadata: dict[str, Any] = {_FIELD: kept}
    if "usage" in data:
        metadata["usage"] = data["usage"]
    return Message(role=_role(data), content=[_block(part) for part in parts], metadata=metadata)


def _role(data: dict[str, Any]) -> Role:
    if data["kind"] == "response":
        return "assistant"
    kinds = {part["part_kind"] for part in data["parts"]}
    if "user-prompt" in kinds:
        return "user"
    return "system" if kinds <= {"system-prompt"} else "tool"


def _readable(part: dict[str, Any]) -> tuple[str, ...]:
    """The fields that the block of a part holds."""
    kind = part["part_kind"]
    if kind == "tool-call":
        return ("tool_name", "args", "tool_call_id")
    if kind == "tool-return":
        return ("tool_name", "content", "tool_call_id")
    is_text = kind in _TEXTS or kind == "thinking"
    return ("content",) if is_text and isinstance(part["content"], str) else ()


def _block(part: dict[str, Any]) -> Any:
    kind = part["part_kind"]
    if not _readable(part):
        return UnknownBlock(type=f"pydantic-ai/{kind}", part=part)
    if kind == "tool-call":
        return ToolCallBlock(tool_call_id=part["tool_call_id"], title=part["tool_name"], raw_input=part["args"])
    if kind == "tool-return":
        status = "completed" if part.get("outcome", "success") == "success" else "failed"
        return ToolCallBlock(
            tool_call_id=part["tool_call_id"], title=part["tool_name"], status=status, raw_output=part["content"]
        )
    return ThoughtBlock(text=part["content"]) if kind == "thinking" else TextBlock(text=part["content"])


def _rest(part: dict[str, Any]) -> dict[str, Any] | None:
    names = _readable(part)
    return {name: value for name, value in part.items() if name not in names} if names else None


def _part(block: Any, rest: dict[str, Any] | None) -> dict[str, Any]:
    if rest is None:
        return dict(thaw(block.raw()["part"]))
    if not isinstance(block, ToolCallBlock):
        return {**rest, "content": block.text}
    named = {"tool_name": block.title, "tool_call_id": block.tool_call_id}
    if rest["part_kind"] == "tool-call":
        return {**rest, **named, "args": thaw(block.raw_input)}
    return {**rest, **named, "content": thaw(block.raw_output)}
