"""A message in the making: text as it streams in, tool calls as they are updated, in the order they came."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.model.content import Block, TextBlock, ThoughtBlock, ToolCallBlock, parse_block

__all__ = ["Draft", "tool_fields"]

_TOOL_FIELDS = {
    "title": "title", "kind": "kind", "status": "status", "content": "content", "locations": "locations",
    "rawInput": "raw_input", "rawOutput": "raw_output",
}  # fmt: skip
_JOIN_AT = 1024


class _Stream:
    """Text or thought that is still growing. Pieces are joined now and then, so memory stays near the text's size."""

    def __init__(self, kind: str, message_id: Any) -> None:
        self.kind, self.message_id = kind, message_id
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        self._pieces.append(text)
        if len(self._pieces) >= _JOIN_AT:
            self._pieces = ["".join(self._pieces)]

    def block(self) -> Block:
        text = "".join(self._pieces)
        return ThoughtBlock(text=text) if self.kind == "thought" else TextBlock(text=text)


class Draft:
    """The assistant's message of the running turn. `blocks` is cheap: what did not change is the same object."""

    def __init__(self) -> None:
        self._blocks: list[Block | _Stream] = []
        self._tools: dict[str, int] = {}

    def chunk(self, kind: str, content: Any, message_id: Any) -> None:
        """Take in a message or thought chunk; neighbours of one kind and message are one block."""
        if (
            not isinstance(content, dict)
            or content.get("type") != "text"
            or not isinstance(content.get("text"), str)
        ):
            self._blocks.append(_foreign(kind, content))
            return
        last = self._blocks[-1] if self._blocks else None
        if content.keys() > {"type", "text"}:  # annotations and the like belong to this chunk alone
            self._blocks.append(_foreign(kind, content) if kind == "thought" else parse_block(content))
            return
        if not isinstance(last, _Stream) or last.kind != kind or last.message_id != message_id:
            last = _Stream(kind, message_id)
            self._blocks.append(last)
        last.add(content["text"])

    def tool(self, update: dict[str, Any]) -> bool:
        """Take in a tool call or its update; False when it is an update of a call this message does not have."""
        call_id = update.get("toolCallId")
        if not isinstance(call_id, str):
            return False
        at = self._tools.get(call_id)
        if at is not None:
            block = self._blocks[at]
            if isinstance(block, ToolCallBlock):
                self._blocks[at] = merged(block, update)
            return True
        if update.get("sessionUpdate") != "tool_call":
            return False
        self._tools[call_id] = len(self._blocks)
        self._blocks.append(merged(ToolCallBlock(tool_call_id=call_id), update))
        return True

    def keep(self, update: dict[str, Any]) -> None:
        """Keep an update of a kind we do not know, verbatim and in its place."""
        self._blocks.append(parse_block({"type": "acp_update", "update": update}))

    def edit(self, call_id: str, change: dict[str, Any]) -> bool:
        """Change fields of a tool call that is here."""
        at = self._tools.get(call_id)
        block = self._blocks[at] if at is not None else None
        if at is None or not isinstance(block, ToolCallBlock):
            return False
        self._blocks[at] = block.evolve(**change)
        return True

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The message so far."""
        return tuple(block.block() if isinstance(block, _Stream) else block for block in self._blocks)

    def __bool__(self) -> bool:
        return bool(self._blocks)


def _foreign(kind: str, content: Any) -> Block:
    if kind == "thought":
        return ThoughtBlock(content=content)
    return parse_block(content if isinstance(content, dict) else {"type": "acp_content", "content": content})


def tool_fields(update: dict[str, Any]) -> dict[str, Any]:
    """The fields of a tool call that an update sets; what it does not know is kept under its own name."""
    known = {ours: update[wire] for wire, ours in _TOOL_FIELDS.items() if update.get(wire) is not None}
    rest = {
        key: value
        for key, value in update.items()
        if key not in _TOOL_FIELDS and key not in ("sessionUpdate", "toolCallId") and value is not None
    }
    return {**known, **rest}


def merged(block: ToolCallBlock, update: dict[str, Any]) -> ToolCallBlock:
    """The call with an update applied: lists replace, absent fields stay."""
    fields = tool_fields(update)
    fields = {k: v for k, v in fields.items() if k not in ("title", "kind", "status") or isinstance(v, str)}
    return block.evolve(**fields)
