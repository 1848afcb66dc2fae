"""Transcript entries of the Claude Agent SDK as messages of a session, and back.

Prompts, answers, thoughts, tool calls and results are readable; every other field of an entry is in
``metadata.claude``. An entry that the mapping would not give back exactly (a queue operation, a summary, a kind of
a later release) is kept as it is and hidden from people. Entries are plain JSON.
"""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from typing import Any

from snapshot_plugin.frameworks.conversations import is_exact_json, mapped_exactly, raw_of, with_floats
from snapshot_plugin.frameworks.parts import PartMap, ShownAs
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role
from snapshot_plugin.model.times import moment_of

__all__ = ["entry_of", "message_of", "model_of"]

_FIELD = "claude"
_PARTS = PartMap(
    lambda part: str(part["type"]),
    {
        "text": ShownAs("text", {"text": "text"}),
        "thinking": ShownAs("thought", {"thinking": "text"}),
        "tool_use": ShownAs("tool_call", {"id": "toolCallId", "name": "title", "input": "rawInput"}),
        "tool_result": ShownAs("text", {"content": "text"}),
    },
    inner={"tool_result": "content"},
)


def message_of(entry: Any) -> Message:
    """An entry as a message; its ``uuid`` is the message's id.

    Raises:
        TypeError, InvalidInput: JSON cannot carry the entry.
    """
    exact = entry if is_exact_json(entry) else json.loads(json.dumps(entry))
    uuid = exact.get("uuid") if isinstance(exact, dict) else None
    if not isinstance(uuid, str):
        return mapped_exactly(_FIELD, exact, _mapped, _without_uuid)
    kept = {name: value for name, value in exact.items() if name != "uuid"}
    return mapped_exactly(_FIELD, kept, _mapped, _without_uuid).evolve(id=uuid)


def entry_of(message: Message) -> Any:
    """The entry that *message* was made of; each call makes a new one."""
    entry = _without_uuid(message)
    return entry if message.id is None else {**entry, "uuid": message.id}


def _without_uuid(message: Message) -> Any:
    if (raw := raw_of(_FIELD, message)) is not None:
        return raw
    entry = thaw(message.metadata[_FIELD])
    inner, parts = entry["message"], entry.pop("parts")
    blocks = [block.raw() for block in message.content]
    inner["content"] = message.text if parts is None else _PARTS.parts(blocks, parts)
    if (usage := message.metadata.get("usage")) is not None:
        inner["usage"] = thaw(usage)
    if message.timestamp is not None:
        entry["timestamp"] = _stamp(message.timestamp)
    return with_floats(entry, message.metadata)


def model_of(message: Message) -> str | None:
    """The model that wrote the message, where the entry says so."""
    kept = message.metadata.get(_FIELD, {})
    inner = kept.get("message") if isinstance(kept, dict) else None
    model = inner.get("model") if isinstance(inner, dict) else None
    return model if isinstance(model, str) else None


def _mapped(entry: dict[str, Any]) -> Message | None:
    kind, inner = entry["type"], entry.get("message")
    if kind not in ("user", "assistant") or not isinstance(inner, dict) or "parts" in entry:
        return None
    content, role = inner["content"], _role(kind, inner["content"])
    blocks, parts = _PARTS.blocks([content] if isinstance(content, str) else content)
    if not blocks:
        return None
    kept = {name: value for name, value in entry.items() if name != "message"}
    kept["message"] = {name: value for name, value in inner.items() if name not in ("content", "usage")}
    kept["parts"] = None if isinstance(content, str) else parts
    metadata: dict[str, Any] = {_FIELD: kept}
    if "usage" in inner:
        metadata["usage"] = inner["usage"]
    if role == "tool":
        metadata["tool_call_id"] = content[0]["tool_use_id"]
    moment = None
    with contextlib.suppress(KeyError, ValueError, TypeError):
        moment = moment_of(kept["timestamp"])
        if _stamp(moment) == kept["timestamp"]:
            del kept["timestamp"]
        else:
            moment = None
    made = {"role": role, "content": blocks, "timestamp": moment, "metadata": metadata}
    return Message.model_validate(made)


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _role(kind: str, content: Any) -> Role:
    if kind == "assistant":
        return "assistant"
    answers = isinstance(content, list) and [part.get("type") for part in content] == ["tool_result"]
    return "tool" if answers else "user"
