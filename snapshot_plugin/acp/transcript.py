"""The conversation while it is recorded: finished messages, the one in the making, and where each tool call is.

Text is joined as it streams in, and tool calls are updated, in the order in which they came.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from snapshot_plugin.model.content import Block, TextBlock, ThoughtBlock, ToolCallBlock, parse_block
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["Draft", "Transcript", "foreign_block", "merged", "plain", "without_terminals"]

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
_PART = 1 << 20
_DEPTH = 100


def plain(value: Any, depth: int = _DEPTH) -> Any:
    """*value* as every store can carry it: numbers finite, nesting bounded.

    Other values are replaced by their names.
    """
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

    @property
    def is_long(self) -> bool:
        """Whether it ends in so much streamed text that what follows should be another message."""
        last = self._blocks[-1] if self._blocks else None
        return isinstance(last, _Stream) and last.length >= _PART

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


_TOLD = ("terminal_info", "terminal_output", "terminal_output_delta", "terminal_exit")
_OUTPUT_LIMIT = 1 << 20


class Transcript:
    """Messages in order. A tool call may change for as long as the session lives, in whichever message it is."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._finished: list[Message] = []
        self._draft: Draft | None = None
        self._places: dict[str, tuple[int, int]] = {}
        self._terminals: dict[str, dict[str, Any]] = {}
        self._shown_by: dict[str, list[str]] = {}
        self._shows: dict[str, set[str]] = {}
        for message in messages:
            self.add(message)

    def messages(self) -> tuple[Message, ...]:
        """Everything said so far."""
        return (*self._finished, self._draft.message()) if self._draft else tuple(self._finished)

    def add(self, message: Message) -> None:
        """Add a whole message behind the one in the making, which is finished by that."""
        self.finish()
        self._finished.append(message)
        for at, block in enumerate(message.content):
            if isinstance(block, ToolCallBlock):
                self._places[block.tool_call_id] = (len(self._finished) - 1, at)
                self._note_terminals(block)

    def finish(self, **fields: Any) -> None:
        """The message in the making is complete; *fields* are what only its end could tell."""
        draft, self._draft = self._draft, None
        if draft:
            self.add(draft.message(**fields))

    def draft(self, role: Role) -> Draft:
        """The message *role* is making; that of another role is finished first."""
        if self._draft is None or self._draft.role != role:
            self.finish()
            self._draft = Draft(role)
        return self._draft

    @property
    def drafting(self) -> Draft | None:
        """The message in the making."""
        return self._draft

    def reopen(self, message_id: Any) -> None:
        """Go on with the last message instead of beginning a new one."""
        last = self._finished.pop()
        self._places = {call: at for call, at in self._places.items() if at[0] < len(self._finished)}
        self._draft = Draft.reopened(last, message_id)

    # Tool calls -------------------------------------------------------------------------------------------

    def begin_call(self, update: dict[str, Any]) -> None:
        """Begin a tool call. Agents reuse ids in later turns, so only a call of this message can match."""
        draft = self.draft("assistant")
        call_id = update["toolCallId"]
        self._put(draft, merged(draft.call(call_id) or ToolCallBlock(tool_call_id=call_id), update))

    def update_call(self, update: dict[str, Any]) -> None:
        """Update a tool call, however old; an unknown call is begun."""
        call = self._call(update["toolCallId"])
        if call is None:
            self.begin_call(update)
        else:
            self._replace(merged(call, update))

    def mark_permission(self, call_id: str, note: dict[str, Any]) -> None:
        """Note at a tool call what was asked or answered before it ran."""
        if call := self._call(call_id):
            before = (call.model_extra or {}).get("permission") or {}
            self._replace(call.evolve(permission={**before, **note}))

    def terminal(self, terminal_id: str, seen: dict[str, Any]) -> None:
        """What is known of a terminal goes to every call that shows it, now or later."""
        self._terminals[terminal_id] = {**self._terminals.get(terminal_id, {}), **seen}
        for call_id in self._shown_by.get(terminal_id, ()):
            if call := self._call(call_id):
                self._replace(call)

    def terminal_of(self, call_id: str, terminal_id: str, seen: dict[str, Any]) -> None:
        """What an update of a call tells of a terminal of the agent's own; output is added to what there is."""
        before = self._terminals.get(terminal_id, {})
        output = str(before.get("output", "")) + seen.pop("output", "")
        self._terminals[terminal_id] = {**before, **seen, "meta": True, "output": output[-_OUTPUT_LIMIT:]}
        if call := self._call(call_id):
            told = {**_terminals_told(call), terminal_id: self._terminals[terminal_id]}
            self._replace(call.evolve(terminals=told))

    def unshown_terminals(self) -> dict[str, Any]:
        """Terminals that no tool call shows or tells of, and what is known of them."""
        return {name: seen for name, seen in self._terminals.items() if name not in self._shown_by}

    def _call(self, call_id: str) -> ToolCallBlock | None:
        if self._draft and (call := self._draft.call(call_id)):
            return call
        if call_id not in self._places:
            return None
        message, at = self._places[call_id]
        block = self._finished[message].content[at]
        return block if isinstance(block, ToolCallBlock) else None

    def _replace(self, call: ToolCallBlock) -> None:
        if self._draft and self._draft.call(call.tool_call_id):
            self._put(self._draft, call)
            return
        message, at = self._places[call.tool_call_id]
        blocks = self._finished[message].content
        changed = (*blocks[:at], self._with_terminals(call), *blocks[at + 1 :])
        self._finished[message] = self._finished[message].evolve(content=changed)

    def _put(self, draft: Draft, call: ToolCallBlock) -> None:
        draft.put(self._with_terminals(call))

    # Terminals --------------------------------------------------------------------------------------------

    def _with_terminals(self, call: ToolCallBlock) -> ToolCallBlock:
        told = _terminals_told(call)
        shown = dict.fromkeys([*told, *_terminals_in(call)])
        self._note_shown(call.tool_call_id, set(shown))
        known = {name: self._terminals[name] for name in shown if name in self._terminals}
        return call.evolve(terminals={**told, **known}) if known else call

    def _note_shown(self, call_id: str, names: set[str]) -> None:
        before = self._shows.get(call_id, set())
        for name in before - names:
            self._shown_by[name].remove(call_id)
            if not self._shown_by[name]:
                del self._shown_by[name]
        for name in names - before:
            self._shown_by.setdefault(name, []).append(call_id)
        self._shows[call_id] = names

    def _note_terminals(self, call: ToolCallBlock) -> None:
        """Reload what a stored call contains about terminals."""
        for name, seen in _terminals_told(call).items():
            self._terminals[name] = {**self._terminals.get(name, {}), **thaw(seen)}
        self._with_terminals(call)


def _terminals_told(call: ToolCallBlock) -> dict[str, Any]:
    """What the call itself tells of terminals, those it does not show any more included."""
    return (call.model_extra or {}).get("terminals") or {}


def _terminals_in(call: ToolCallBlock) -> Iterator[str]:
    for item in call.content if isinstance(call.content, list) else ():
        if isinstance(item, dict) and item.get("type") == "terminal" and isinstance(item.get("terminalId"), str):
            yield item["terminalId"]


def without_terminals(update: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The update of a call without what its ``_meta`` tells of terminals, and that, by terminal."""
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
