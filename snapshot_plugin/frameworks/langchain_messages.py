"""LangChain messages as messages of a session, and back: words and tool calls readable, the rest in metadata.

A message is mapped only if the mapping gives it back exactly; `mapped` checks that by making it again. Objects are
made by LangChain's own message classes, whose names are looked up in a fixed list.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from langchain_core import messages as langchain
from langchain_core.messages import BaseMessage

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.frameworks.conversations import is_exact_json
from snapshot_plugin.model.content import TextBlock, ToolCallBlock, parse_block
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["Mapped", "langchain_message", "mapped"]

_FIELD = "langchain"
_ROLES: dict[str, Role] = {
    "HumanMessage": "user", "AIMessage": "assistant", "SystemMessage": "system", "ToolMessage": "tool",
    "FunctionMessage": "tool", "ChatMessage": "user", "RemoveMessage": "system", "AIMessageChunk": "assistant",
    "HumanMessageChunk": "user", "SystemMessageChunk": "system", "ToolMessageChunk": "tool",
}  # fmt: skip
_CLASSES: dict[str, type[BaseMessage]] = {name: getattr(langchain, name) for name in _ROLES}
_USUAL = {"user": "HumanMessage", "assistant": "AIMessage", "system": "SystemMessage", "tool": "ToolMessage"}
_READABLE = frozenset({"content", "id", "type", "tool_calls", "tool_call_id", "usage_metadata"})


class Mapped(NamedTuple):
    """A message of a session, and the LangChain message it stands for, which no other code may change."""

    message: Message
    pristine: BaseMessage
    editable: tuple[str, ...]
    """The fields of it that hold a dict or a list."""

    @classmethod
    def of(cls, message: Message) -> Mapped:
        """A message of a session with the LangChain message that is made of it."""
        pristine = langchain_message(message)
        editable = tuple(name for name, value in pristine.__dict__.items() if type(value) in (dict, list))
        return cls(message, pristine, editable)

    def stands_for(self, other: BaseMessage) -> bool:
        """Whether *other* is still what was mapped."""
        mine = self.pristine
        return bool(
            type(other) is type(mine)
            and other.__dict__ == mine.__dict__
            and other.__pydantic_extra__ == mine.__pydantic_extra__
        )

    def copy(self) -> BaseMessage:
        """A copy of the LangChain message that the caller may change."""
        mine = self.pristine
        if mine.__pydantic_extra__ or mine.__pydantic_private__:
            return mine.model_copy(deep=True)
        # Every turn copies every message, and this takes a tenth of what `model_copy` takes.
        own = mine.__dict__.copy()
        for name in self.editable:
            own[name] = thaw(own[name]) if own[name] else type(own[name])()
        made = object.__new__(type(mine))
        put = object.__setattr__
        put(made, "__dict__", own)
        put(made, "__pydantic_fields_set__", mine.__pydantic_fields_set__.copy())
        put(made, "__pydantic_extra__", None if mine.__pydantic_extra__ is None else {})
        put(made, "__pydantic_private__", None)
        return made


def mapped(given: BaseMessage) -> Mapped | None:
    """*given* as a message of a session; None if it could not be made again exactly."""
    kind = type(given).__name__
    if _CLASSES.get(kind) is not type(given):
        return None
    try:
        result = Mapped.of(_message(given, kind))
    except (InvalidSnapshot, ValueError, TypeError, KeyError):
        return None
    return result if result.stands_for(given) else None


def _message(given: BaseMessage, kind: str) -> Message:
    fields = {**given.__dict__, **(given.__pydantic_extra__ or {})}
    if not is_exact_json(fields):
        raise InvalidSnapshot("the message holds values that are not JSON")
    usual = _defaults(kind)
    rest = {
        name: value
        for name, value in fields.items()
        if name not in _READABLE and (name not in usual or value != usual[name])
    }
    if kind != _USUAL[_ROLES[kind]]:
        rest["class"] = kind
    content, calls = fields["content"], fields.get("tool_calls") or []
    if not isinstance(content, str):
        rest["listed"] = True
    if calls:
        rest["calls"] = len(calls)
    metadata: dict[str, Any] = {_FIELD: rest} if rest else {}
    if fields.get("tool_call_id") is not None:
        metadata["tool_call_id"] = fields["tool_call_id"]
    if fields.get("usage_metadata"):
        metadata["usage"] = fields["usage_metadata"]
    blocks = [*_blocks(content), *(_call(call) for call in calls)]
    return Message(role=_ROLES[kind], content=blocks, id=given.id, metadata=metadata)


@cache
def _defaults(kind: str) -> dict[str, Any]:
    return {
        name: field.get_default(call_default_factory=True) for name, field in _CLASSES[kind].model_fields.items()
    }


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [TextBlock(text=content)] if content else []
    return [parse_block(block) for block in content]


def _call(call: dict[str, Any]) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=call["id"], title=call["name"], raw_input=call["args"])


def langchain_message(message: Message) -> BaseMessage:
    """The LangChain message that *message* was made of; each call makes a new one."""
    rest = thaw(message.metadata.get(_FIELD, {}))
    cls = _CLASSES[rest.pop("class", _USUAL[message.role])]
    count, listed = rest.pop("calls", 0), rest.pop("listed", False)
    blocks = message.content[: len(message.content) - count]
    content: Any = [thaw(block.raw()) for block in blocks] if listed else message.text
    given = {"content": content, "id": message.id, **rest}
    if count:
        given["tool_calls"] = [_langchain_call(block) for block in message.content[-count:]]
    if (answered := message.metadata.get("tool_call_id")) is not None:
        given["tool_call_id"] = answered
    if (usage := message.metadata.get("usage")) is not None:
        given["usage_metadata"] = thaw(usage)
    return cls(**given)


def _langchain_call(block: Any) -> dict[str, Any]:
    return {
        "name": block.title, "args": thaw(block.raw_input), "id": block.tool_call_id, "type": "tool_call",
    }  # fmt: skip
