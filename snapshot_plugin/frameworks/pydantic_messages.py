"""Messages of pydantic-ai (as its own JSON) as messages of a session, and back.

Prompts, answers, thoughts, tool calls and results are readable; every other field is in ``metadata.pydantic_ai``. A
message that the mapping would not give back exactly is kept as it is and hidden from people.
"""

from __future__ import annotations

import contextlib
from typing import Any

from snapshot_plugin.frameworks.conversations import mapped_exactly, raw_of, with_floats
from snapshot_plugin.frameworks.parts import PartMap, ShownAs
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["json_of", "message_of", "model_of", "prompt_of"]

_FIELD = "pydantic_ai"
_TEXT = ShownAs("text", {"content": "text"})
_CALL = {"tool_name": "title", "tool_call_id": "toolCallId"}
_PARTS = PartMap(
    lambda part: str(part["part_kind"] if "part_kind" in part else part["kind"]),
    {
        **dict.fromkeys(("user-prompt", "system-prompt", "text", "retry-prompt", "retry-feedback"), _TEXT),
        "thinking": ShownAs("thought", {"content": "text"}),
        "tool-call": ShownAs("tool_call", {**_CALL, "args": "rawInput"}),
        "tool-return": ShownAs(
            "tool_call", {**_CALL, "content": "rawOutput"},
            lambda part: "completed" if part.get("outcome", "success") == "success" else "failed",
        ),
    },
    inner={"user-prompt": "content"}, prefix="pydantic-ai/",
)  # fmt: skip


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
    data["parts"] = _PARTS.parts([block.raw() for block in message.content], data["parts"])
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
    words: list[Any] = []
    with contextlib.suppress(AttributeError, LookupError, TypeError, ValueError):  # another program wrote it
        for part in json_of(message)["parts"]:
            if part["part_kind"] == "user-prompt":
                words += [part["content"]] if isinstance(part["content"], str) else part["content"]
    return " ".join(word for word in words if isinstance(word, str))


def _mapped(data: dict[str, Any]) -> Message | None:
    parts = data["parts"]
    if not parts or data["kind"] not in ("request", "response"):
        return None
    blocks, rests = _PARTS.blocks(parts)
    kept = {**{name: value for name, value in data.items() if name != "usage"}, "parts": rests}
    metadata: dict[str, Any] = {_FIELD: kept}
    if "usage" in data:
        metadata["usage"] = data["usage"]
    return Message.model_validate({"role": _role(data), "content": blocks, "metadata": metadata})


def _role(data: dict[str, Any]) -> Role:
    if data["kind"] == "response":
        return "assistant"
    kinds = {part["part_kind"] for part in data["parts"]}
    if "user-prompt" in kinds:
        return "user"
    return "system" if kinds <= {"system-prompt"} else "tool"
