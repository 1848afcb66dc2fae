"""Items of the OpenAI Responses API as messages of a session, and back.

Words, thoughts, tool calls and results are readable; every other field of an item is in ``metadata.openai``. An
item that the mapping would not give back exactly is kept as it is and hidden from people. Items are plain JSON.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from snapshot_plugin.codec.document import parsed
from snapshot_plugin.errors import InvalidInput, InvalidSnapshot
from snapshot_plugin.frameworks.conversations import RAW, mapped_exactly, raw_of, with_floats
from snapshot_plugin.frameworks.parts import PartMap, ShownAs
from snapshot_plugin.model.frozen import FrozenDict, thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["item_in", "item_of", "message_of"]

_FIELD = "openai"
_TEXT = {str}
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_KINDS: dict[str, Role] = {
    "function_call": "assistant", "custom_tool_call": "assistant", "reasoning": "assistant",
    "function_call_output": "tool", "custom_tool_call_output": "tool",
}  # fmt: skip
"""The readable kinds of items that are not messages."""
_CALL = {"call_id": "toolCallId", "name": "title"}
_PARTS = PartMap(
    lambda part: str(part.get("type", "message")),
    {
        **dict.fromkeys(("input_text", "output_text", "text"), ShownAs("text", {"text": "text"})),
        **dict.fromkeys(("summary_text", "reasoning_text"), ShownAs("thought", {"text": "text"})),
        **dict.fromkeys(("function_call_output", "custom_tool_call_output"), ShownAs("text", {"output": "text"})),
        "message": ShownAs("text", {"content": "text"}),
        "refusal": ShownAs("text", {"refusal": "text"}),
        "function_call": ShownAs("tool_call", {**_CALL, "arguments": "rawInput"}),
        "custom_tool_call": ShownAs("tool_call", {**_CALL, "input": "rawInput"}),
    },
    inner={
        "message": "content", "reasoning": "summary",
        "function_call_output": "output", "custom_tool_call_output": "output",
    },
)  # fmt: skip


def message_of(item: Any) -> Message:
    """An item as a message.

    Raises:
        TypeError: JSON cannot carry the item.
        InvalidInput: it is nested too deeply.
    """
    if _is_plain(item):
        with contextlib.suppress(InvalidSnapshot, ValueError):
            return _said_plainly(item)
    try:
        return mapped_exactly(_FIELD, item, _mapped, item_of)
    except InvalidInput:  # a tuple, an enum: JSON carries them as something else
        return mapped_exactly(_FIELD, json.loads(json.dumps(item)), _mapped, item_of)


def item_of(message: Message) -> Any:
    """The item that *message* was made of; each call makes a new one."""
    about = message.metadata[_FIELD]
    if not message.content and RAW in about:
        return raw_of(_FIELD, message)
    return _item([block.raw() for block in message.content], thaw(about["rest"]), message.metadata)


def item_in(line: bytes) -> Any:
    """The item in a stored line, read without making a message first."""
    message = parsed(line)["message"]
    metadata, blocks = message["metadata"], message.get("content", ())
    about = metadata[_FIELD]
    if not blocks and RAW in about:
        return with_floats(about[RAW], metadata)
    return _item(blocks, about["rest"], metadata)


def _item(blocks: Sequence[Mapping[str, Any]], rest: dict[str, Any], metadata: Mapping[str, Any]) -> Any:
    """The item of these stored blocks; *rest* becomes a part of it."""
    [item] = _PARTS.parts(blocks, (rest,))
    if (answered := metadata.get("tool_call_id")) is not None:
        item["call_id"] = answered
    return with_floats(item, metadata)


def _mapped(item: Any) -> Message | None:
    kind = item.get("type", "message")
    role = _ROLES.get(item.get("role")) if kind == "message" else _KINDS.get(kind)
    blocks, [rest] = _PARTS.blocks([item])
    if role is None or rest is None:
        return None
    metadata = {_FIELD: {"rest": rest}}
    if role == "tool":
        metadata["tool_call_id"] = rest.pop("call_id")
    return Message.model_validate({"role": role, "content": blocks, "metadata": metadata})


def _is_plain(item: Any) -> bool:
    """Whether all fields of *item* are text, as in most items. It then round-trips exactly without a comparison."""
    return (
        type(item) is dict
        and {*map(type, item), *map(type, item.values())} == _TEXT
        and item.get("role") in _ROLES
        and item.get("type", "message") == "message"
        and "content" in item
    )


def _said_plainly(item: dict[str, str]) -> Message:
    rest = FrozenDict({name: value for name, value in item.items() if name != "content"})
    about = FrozenDict({_FIELD: FrozenDict({"rest": rest})})
    content = ({"type": "text", "text": item["content"]},)
    return Message.model_validate({"role": _ROLES[item["role"]], "content": content, "metadata": about})
