"""Messages of Microsoft's agent-framework (as its own JSON) as messages of a session, and back.

Words, thoughts, function calls and results are readable; every other field is in ``metadata.agent_framework``. A
message that the mapping would not give back exactly is kept as it is and hidden from people.
"""

from __future__ import annotations

from typing import Any

from snapshot_plugin.frameworks.conversations import mapped_exactly, raw_of, with_floats
from snapshot_plugin.frameworks.parts import PartMap, ShownAs
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["json_of", "message_of"]

_FIELD = "agent_framework"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}
_CONTENTS = PartMap(
    lambda content: str(content["type"]),
    {
        "text": ShownAs("text", {"text": "text"}),
        "text_reasoning": ShownAs("thought", {"text": "text"}),
        "function_call": ShownAs("tool_call", {"call_id": "toolCallId", "name": "title", "arguments": "rawInput"}),
        "function_result": ShownAs(
            "tool_call", {"call_id": "toolCallId", "result": "rawOutput"}, lambda _: "completed"
        ),
    },
)


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
    data["contents"] = _CONTENTS.parts([block.raw() for block in message.content], data["contents"])
    return dict(with_floats(data, message.metadata))


def _mapped(data: dict[str, Any]) -> Message:
    blocks, rests = _CONTENTS.blocks(data["contents"])
    kept = {**data, "contents": rests}
    role = _ROLES.get(data["role"], "system")
    return Message.model_validate({"role": role, "content": blocks, "metadata": {_FIELD: kept}})
