"""The message that is being received: streamed text, tool calls, and the terminals that tool calls show.

Terminal ids are invalid after the client exits, so the output of terminals is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from snapshot_plugin.model.content import Block, TextBlock, ThoughtBlock, ToolCallBlock, parse_block
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["Draft", "Terminals", "foreign_block", "merged_call", "to_json_safe", "without_terminals"]

_TOOL_FIELDS = {
    "title": "title", "kind": "kind", "status": "status", "content": "content", "locations": "locations",
    "rawInput": "raw_input", "rawOutput": "raw_output",
}  # fmt: skip
_WORDS = ("title", "kind", "status")
_NOT_THE_AGENTS = frozenset(
    {"sessionUpdate", "toolCallId", "tool_call_id", "raw_input", "raw_output", "type", "permission", "terminals"}
)
"""Fields that an update may not set: the id of the call, our names of fields, and fields that we add."""
_OUR_KINDS = ("thought", "tool_call", "acp_update", "acp_content")
_JOIN_AT = 1024
_PART = 1 << 20
_DEPTH = 100
_KEPT = ("command", "args", "cwd", "output", "truncated", "exitStatus", "exitCode", "signal")
"""The fields of a terminal that are kept; its environment is not."""
_TOLD = ("terminal_info", "terminal_output", "terminal_output_delta", "terminal_exit")
_OUTPUT_LIMIT = 1 << 20


class Draft:
    """An unfinished message. Adding costs time linear in the addition; `message`, in the whole message."""

    def __init__(self, role: Role) -> None:
        self.role: Role = role
        self._blocks: list[Block | _Stream] = []
        self._calls: dict[str, int] = {}
        self.message_id: Any = None
        """The agent's message id in the last chunk."""

    @classmethod
    def reopened(cls, message: Message, message_id: Any) -> Draft:
        """Reopen *message* to add to it; *message_id* is the id in its last chunk."""
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

    @property
    def is_long(self) -> bool:
        """Whether it ends in so much streamed text that a new message should be started."""
        last = self._blocks[-1] if self._blocks else None
        return isinstance(last, _Stream) and last.length >= _PART

    def chunk(self, kind: str, content: Any, message_id: Any) -> None:
        """Add a chunk of text or thought; adjacent chunks of one kind and one message are coalesced."""
        same, self.message_id = self.message_id == message_id, message_id
        if not _is_only_text(content):
            block = foreign_block(to_json_safe(content))
            self._blocks.append(ThoughtBlock(content=block.raw()) if kind == "thought" else block)
            return
        last = self._blocks[-1] if self._blocks else None
        if not same or not isinstance(last, _Stream) or last.kind != kind:
            last = _Stream(kind)
            self._blocks.append(last)
        last.add(content["text"])

    def keep(self, update: dict[str, Any]) -> None:
        """Keep an update of an unknown kind, verbatim and in order."""
        self._blocks.append(parse_block({"type": "acp_update", "update": update}))

    def call(self, call_id: str) -> ToolCallBlock | None:
        """Return the tool call with that id; None if it is not in this message."""
        at = self._calls.get(call_id)
        block = self._blocks[at] if at is not None else None
        return block if isinstance(block, ToolCallBlock) else None

    def put(self, call: ToolCallBlock) -> None:
        """Add a tool call, or replace the one with the same id."""
        at = self._calls.setdefault(call.tool_call_id, len(self._blocks))
        self._blocks[at : at + 1] = [call]

    def message(self, **fields: Any) -> Message:
        """Return the message so far."""
        blocks = tuple(block.block() if isinstance(block, _Stream) else block for block in self._blocks)
        return Message(role=self.role, content=blocks, **fields)


def _is_only_text(content: Any) -> bool:
    """Whether *content* is plain text. Chunks with annotations are not coalesced: they apply to one chunk alone."""
    if not isinstance(content, dict) or content.get("type") != "text" or not isinstance(content.get("text"), str):
        return False
    return len(content) == 2 or all(content[key] is None for key in content.keys() - {"type", "text"})  # noqa: PLR2004 — type and text


class _Stream:
    """Text or thought that still grows. Pieces are joined periodically, so memory stays near the text's size."""

    def __init__(self, kind: str, text: str = "") -> None:
        self.kind = kind
        self._joined: list[str] = [text]
        self._pieces: list[str] = []
        self.length = len(text)

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.length += len(text)
        if len(self._pieces) == _JOIN_AT:
            self._joined.append("".join(self._pieces))
            self._pieces.clear()

    def block(self) -> Block:
        text = "".join((*self._joined, *self._pieces))
        return ThoughtBlock(text=text) if self.kind == "thought" else TextBlock(text=text)


def to_json_safe(value: Any, depth: int = _DEPTH) -> Any:
    """Return *value* in a form that every store can hold: finite numbers, limited nesting.

    Other numbers become their names, deeper values a placeholder.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict | list) and not depth:
        return "(nested too deeply)"
    if isinstance(value, dict):
        return {str(key): to_json_safe(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [to_json_safe(inner, depth - 1) for inner in value]
    return value


def foreign_block(content: Any) -> Block:
    """Parse plain content as a block. Content that is not a block, or has one of our types, is wrapped in one."""
    if not isinstance(content, dict) or content.get("type") in _OUR_KINDS:
        content = {"type": "acp_content", "content": content}
    return parse_block(content)


# Tool calls and their terminals --------------------------------------------------------------------------


def merged_call(call: ToolCallBlock, update: dict[str, Any]) -> ToolCallBlock:
    """Return the call with an update applied: lists are replaced, absent fields stay, unknown fields are kept."""
    given = {key: value for key, value in update.items() if value is not None}
    known = {ours: given[wire] for wire, ours in _TOOL_FIELDS.items() if wire in given}
    known = {name: value for name, value in known.items() if name not in _WORDS or isinstance(value, str)}
    rest = {key: given[key] for key in given.keys() - _TOOL_FIELDS.keys() - _NOT_THE_AGENTS}
    return call.evolve(**known, **dict(sorted(rest.items())))


class Terminals:
    """The terminals of a session, and which tool calls show them."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}
        self._shown_by: dict[str, list[str]] = {}
        self._shows: dict[str, set[str]] = {}

    def learn(self, terminal_id: str, seen: Mapping[str, Any]) -> Sequence[str]:
        """Add what the client reported about a terminal. Returns the tool calls that show it."""
        kept = {key: seen[key] for key in _KEPT if key in seen}
        self._known[terminal_id] = {**self._known.get(terminal_id, {}), **kept}
        return tuple(self._shown_by.get(terminal_id, ()))

    def told_by(self, call: ToolCallBlock, terminal_id: str, seen: dict[str, Any]) -> ToolCallBlock:
        """Add what an update of *call* reported about a terminal of the agent; output is appended."""
        before = self._known.get(terminal_id, {})
        output = str(before.get("output", "")) + seen.pop("output", "")
        self._known[terminal_id] = {**before, **seen, "meta": True, "output": output[-_OUTPUT_LIMIT:]}
        return call.evolve(terminals={**_reported(call), terminal_id: self._known[terminal_id]})

    def shown_in(self, call: ToolCallBlock) -> ToolCallBlock:
        """Return the call with all known data of the terminals it shows."""
        told = _reported(call)
        shown = dict.fromkeys([*told, *_ids_in(call)])
        self._note_shown(call.tool_call_id, set(shown))
        known = {name: self._known[name] for name in shown if name in self._known}
        return call.evolve(terminals={**told, **known}) if known else call

    def reload(self, call: ToolCallBlock) -> None:
        """Load the terminal data that a stored call contains."""
        for name, seen in _reported(call).items():
            self._known[name] = {**self._known.get(name, {}), **thaw(seen)}
        self.shown_in(call)

    def unshown(self) -> dict[str, Any]:
        """Return the data of terminals that no tool call shows or reports."""
        return {name: seen for name, seen in self._known.items() if name not in self._shown_by}

    def _note_shown(self, call_id: str, names: set[str]) -> None:
        before = self._shows.get(call_id, set())
        for name in before - names:
            self._shown_by[name].remove(call_id)
            if not self._shown_by[name]:
                del self._shown_by[name]
        for name in names - before:
            self._shown_by.setdefault(name, []).append(call_id)
        self._shows[call_id] = names


def _reported(call: ToolCallBlock) -> dict[str, Any]:
    """Return the terminal data in the call, including terminals it no longer shows."""
    return (call.model_extra or {}).get("terminals") or {}


def _ids_in(call: ToolCallBlock) -> Iterator[str]:
    for item in call.content if isinstance(call.content, list) else ():
        if isinstance(item, dict) and item.get("type") == "terminal" and isinstance(item.get("terminalId"), str):
            yield item["terminalId"]


def without_terminals(update: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Split the terminal data in ``_meta`` from an update of a call. Returns the update, and data by terminal."""
    meta = update.get("_meta")
    told = (
        {name: meta[name] for name in _TOLD if isinstance(meta.get(name), dict)} if isinstance(meta, dict) else {}
    )
    if not told or not isinstance(meta, dict):
        return update, {}
    terminals: dict[str, dict[str, Any]] = {}
    for name, value in told.items():
        seen = terminals.setdefault(str(value.get("terminal_id", update["toolCallId"])), {})
        if isinstance(value.get("data"), str) and "output" in name:
            seen["output"] = seen.get("output", "") + value["data"]
        if name == "terminal_exit":
            seen["exitStatus"] = {"exitCode": value.get("exit_code"), "signal": value.get("signal")}
    rest = {key: value for key, value in meta.items() if key not in told}
    kept = {key: value for key, value in update.items() if key != "_meta"}
    return ({**kept, "_meta": rest} if rest else kept), terminals
