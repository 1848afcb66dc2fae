"""Items of the OpenAI Responses API as messages of a session, and back.

Words, thoughts, tool calls and results are readable; every other field of an item is in ``metadata.openai``. An
item that the mapping would not give back exactly is kept as it is and hidden from people. Items are plain JSON.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from snapshot_plugin.codec.document import parsed
from snapshot_plugin.errors import InvalidInput, InvalidSnapshot
from snapshot_plugin.frameworks.conversations import RAW, mapped_exactly, raw_of, with_floats
from snapshot_plugin.model.frozen import FrozenDict, thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["item_in", "item_of", "message_of"]

_FIELD = "openai"
_TEXT = {str}
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


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
    return _item([block.raw() for block in message.content], about["kind"], thaw(about["rest"]), message.metadata)


def item_in(line: bytes) -> Any:
    """The item in a stored line, read without making a message first."""
    message = parsed(line)["message"]
    metadata, blocks = message["metadata"], message.get("content", ())
    about = metadata[_FIELD]
    if not blocks and RAW in about:
        return with_floats(about[RAW], metadata)
    return _item(blocks, about["kind"], about["rest"], metadata)


def _item(blocks: Sequence[Mapping[str, Any]], kind: str, rest: dict[str, Any], metadata: Mapping[str, Any]) -> Any:
    """The item of these stored blocks; *rest* becomes a part of it."""
    return with_floats({**_READ[kind](blocks, rest.pop("parts", None), metadata), **rest}, metadata)


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
    about = {_FIELD: {"kind": kind, "rest": rest}, **more}
    return Message.model_validate({"role": role, "content": content, "metadata": about})


def _without(item: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in names}


# Messages -------------------------------------------------------------------------------------------------


def _is_plain(item: Any) -> bool:
    """Whether all fields of *item* are text, as in most items. It then round-trips exactly without a comparison."""
    return (
        type(item) is dict
        and {*map(type, item), *map(type, item.values())} == _TEXT
        and item.get("role") in _ROLES
        and item.get("type", "message") == "message"
        and "content" in item
        and "parts" not in item
    )


def _said_plainly(item: dict[str, str]) -> Message:
    rest = FrozenDict(_without(item, "content"))
    about = FrozenDict({_FIELD: FrozenDict({"kind": "text", "rest": rest})})
    content = ({"type": "text", "text": item["content"]},)
    return Message.model_validate({"role": _ROLES[item["role"]], "content": content, "metadata": about})


def _said(item: dict[str, Any]) -> Message | None:
    rest, content = _without(item, "content"), item["content"]
    if isinstance(content, str):
        return _message(_ROLES[item["role"]], "text", rest, [_words(content)])
    blocks = [_words(part["text"]) if "text" in part else part for part in content]
    rest["parts"] = [_without(part, "text") if "text" in part else None for part in content]
    return _message(_ROLES[item["role"]], "parts", rest, blocks) if blocks else None


def _words(text: Any, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": _text(text)}


def _text(value: Any) -> str:
    """*value*, if it is text: a block that does not fit its kind could not be shown to people."""
    if type(value) is not str:
        raise TypeError("not text")
    return value


def _said_in(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "".join([block["text"] for block in blocks])


def _read_parts(blocks: Sequence[Mapping[str, Any]], parts: Any) -> list[Any]:
    return [
        thaw(block) if part is None else {**part, "text": block.get("text", "")}
        for block, part in zip(blocks, parts, strict=True)
    ]


# Tools and thoughts ---------------------------------------------------------------------------------------


def _called(item: dict[str, Any]) -> Message:
    block = {
        "type": "tool_call", "toolCallId": _text(item["call_id"]), "title": _text(item["name"]),
        "rawInput": item["arguments"],
    }  # fmt: skip
    return _message("assistant", "call", _without(item, "call_id", "name", "arguments"), [block])


def _read_call(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    (block,) = blocks
    return {
        "call_id": block["toolCallId"], "name": block.get("title", ""), "arguments": thaw(block.get("rawInput"))
    }  # fmt: skip


def _answered(item: dict[str, Any]) -> Message | None:
    output = item["output"]
    if not isinstance(output, str):
        return None
    rest = _without(item, "output", "call_id")
    return _message("tool", "answer", rest, [_words(output)], tool_call_id=item["call_id"])


def _thought(item: dict[str, Any]) -> Message | None:
    blocks = [_words(part["text"], "thought") for part in item["summary"]]
    rest = {**_without(item, "summary"), "parts": [_without(part, "text") for part in item["summary"]]}
    return _message("assistant", "thought", rest, blocks) if blocks else None


_READ: dict[str, Callable[[Sequence[Mapping[str, Any]], Any, Mapping[str, Any]], dict[str, Any]]] = {
    "text": lambda blocks, _, __: {"content": _said_in(blocks)},
    "parts": lambda blocks, parts, _: {"content": _read_parts(blocks, parts)},
    "call": lambda blocks, _, __: _read_call(blocks),
    "answer": lambda blocks, _, about: {"call_id": about["tool_call_id"], "output": _said_in(blocks)},
    "thought": lambda blocks, parts, _: {"summary": _read_parts(blocks, parts)},
}
"""How the readable fields of each kind of item come back from stored blocks, the kept parts, and the metadata."""
