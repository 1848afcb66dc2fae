"""A message in the making: text as it streams in, tool calls as they are updated, in the order they came."""

from __future__ import annotations

import math
from typing import Any

from snapshot_plugin.model.content import Block, TextBlock, ThoughtBlock, ToolCallBlock, parse_block
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["Draft", "foreign_block", "merged", "plain"]

_TOOL_FIELDS = {
    "title": "title", "kind": "kind", "status": "status", "content": "content", "locations": "locations",
    "rawInput": "raw_input", "rawOutput": "raw_output",
}  # fmt: skip
_WORDS = ("title", "kind", "status")
_NOT_THE_AGENTS = frozenset(
    {"sessionUpdate", "toolCallId", "tool_call_id", "raw_input", "raw_output", "type", "permission", "terminals"}
)
"""Names an update may not set: who the call is, our names for fields, and what we add to it."""
_OUR_KINDS = frozenset({"thought", "tool_call", "acp_update", "acp_content"})
_JOIN_AT = 1024
_DEPTH = 100


def plain(value: Any, depth: int = _DEPTH) -> Any:
    """*value* as every store can carry it: numbers finite, nesting bounded. What is neither is named instead."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict | list) and not depth:
        return "(nested too deeply)"
    if isinstance(value, dict):
        return {str(key): plain(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner, depth - 1) for inner in value]
    return value


def foreign_block(content: Any) -> Block:
    """Content as an agent or a client sent it. What is no block, or says it is one of ours, is kept inside one."""
    content = plain(content)
    if not isinstance(content, dict) or content.get("type") in tuple(_OUR_KINDS):
        content = {"type": "acp_content", "content": content}
    return parse_block(content)


class _Stream:
    """Text or thought that still grows. Pieces are joined now and then, so memory stays near the text's size."""

    def __init__(self, kind: str, text: str = "") -> None:
        self.kind = kind
        self._joined: list[str] = [text]
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        self._pieces.append(text)
        if len(self._pieces) == _JOIN_AT:
            self._joined.append("".join(self._pieces))
            self._pieces.clear()

    def block(self) -> Block:
        text = "".join((*self._joined, *self._pieces))
        return ThoughtBlock(text=text) if self.kind == "thought" else TextBlock(text=text)


class Draft:
    """A message that is not finished. Adding to it costs what is added, `message` costs the message."""

    def __init__(self, role: Role) -> None:
        self.role: Role = role
        self._blocks: list[Block | _Stream] = []
        self._calls: dict[str, int] = {}
        self.message_id: Any = None
        """The id the agent gave to the message its last chunk belongs to."""

    @classmethod
    def reopened(cls, message: Message, message_id: Any) -> Draft:
        """The draft that *message* was made of; *message_id* is the one its last chunk had."""
        draft = cls(message.role)
        draft.message_id = message_id
        draft._blocks = list(message.content)
        calls = [(at, block) for at, block in enumerate(message.content) if isinstance(block, ToolCallBlock)]
        draft._calls = {call.tool_call_id: at for at, call in calls}
        last = message.content[-1] if message.content else None
        if isinstance(last, TextBlock | ThoughtBlock) and last.raw().keys() <= {"type", "text"}:
            kind = "thought" if isinstance(last, ThoughtBlock) else "text"
            draft._blocks[-1] = _Stream(kind, last.text)
        return draft

    def chunk(self, kind: str, content: Any, message_id: Any) -> None:
        """Take in a piece of text or thought; neighbours of one kind and one message are one block."""
        same, self.message_id = self.message_id == message_id, message_id
        if not _is_only_text(content):
            block = foreign_block(content)
            self._blocks.append(ThoughtBlock(content=block.raw()) if kind == "thought" else block)
            return
        last = self._blocks[-1] if self._blocks else None
        if not same or not isinstance(last, _Stream) or last.kind != kind:
            last = _Stream(kind)
            self._blocks.append(last)
        last.add(content["text"])

    def keep(self, update: dict[str, Any]) -> None:
        """Keep an update of a kind we do not know, verbatim and in its place."""
        self._blocks.append(parse_block({"type": "acp_update", "update": update}))

    def call(self, call_id: str) -> ToolCallBlock | None:
        """The tool call of that id, if it is here."""
        at = self._calls.get(call_id)
        block = self._blocks[at] if at is not None else None
        return block if isinstance(block, ToolCallBlock) else None

    def put(self, call: ToolCallBlock) -> None:
        """Add a tool call, or put it in the place of the one with its id."""
        at = self._calls.setdefault(call.tool_call_id, len(self._blocks))
        self._blocks[at : at + 1] = [call]

    def message(self, **fields: Any) -> Message:
        """The message so far."""
        blocks = tuple(block.block() if isinstance(block, _Stream) else block for block in self._blocks)
        return Message(role=self.role, content=blocks, **fields)


def _is_only_text(content: Any) -> bool:
    """Annotations and the like belong to their chunk alone, so that it cannot be joined with others."""
    if not isinstance(content, dict) or content.get("type") != "text" or not isinstance(content.get("text"), str):
        return False
    return len(content) == 2 or all(content[key] is None for key in content.keys() - {"type", "text"})  # noqa: PLR2004 — type and text


def merged(call: ToolCallBlock, update: dict[str, Any]) -> ToolCallBlock:
    """The call with an update applied: lists replace, absent fields stay, unknown ones are kept by their name."""
    given = {key: value for key, value in update.items() if value is not None}
    known = {ours: given[wire] for wire, ours in _TOOL_FIELDS.items() if wire in given}
    known = {name: value for name, value in known.items() if name not in _WORDS or isinstance(value, str)}
    rest = {key: given[key] for key in given.keys() - _TOOL_FIELDS.keys() - _NOT_THE_AGENTS}
    return call.evolve(**known, **dict(sorted(rest.items())))
