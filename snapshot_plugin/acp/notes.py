"""Restoration notes: text sent to the model once, with the next prompt, about what it lacks of the conversation.

A note is one text block between two markers; its content cannot contain the end marker. Its length is limited:
the text of the newest messages comes first, then inputs and outputs of the newest tool calls while they fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from snapshot_plugin.acp.messages import text_in
from snapshot_plugin.acp.replay import NOTE_BEGINS, NOTE_ENDS
from snapshot_plugin.acp.state import settled_tools, turns, was_cut_off
from snapshot_plugin.model.content import Block, ResourceLinkBlock, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["NOTE_LIMIT", "fits", "lost_note", "note_about", "transcript_note", "with_note"]

Raw = dict[str, Any]
NOTE_LIMIT = 60_000
"""Default limit of a note, in characters."""

_OF_A_TOOL = 4_000
_HEAD = 200


def transcript_note(snapshot: SessionSnapshot, *, limit: int = NOTE_LIMIT) -> str:
    """Build a note with the conversation so far, for an agent without memory: its newest *limit* characters."""
    messages = [message for turn in turns(snapshot.messages) if not turn.refused for message in turn.messages]
    plan = "\n".join(f"- [{entry.status or 'pending'}] {entry.content}" for entry in snapshot.plan)
    return _note(
        "This session was restored after an interruption. You have no memory of it, so here is what was said "
        "before the prompt above. Do not repeat or re-run any of it; just continue from here.",
        _transcript(messages, limit) + (f"\n\nThe plan:\n{_inert(plan)}" if plan else ""),
    )


def lost_note(messages: Sequence[Message], *, limit: int = NOTE_LIMIT) -> str:
    """Build a note with what the user saw and the agent lacks, of at most *limit* characters."""
    return _note(
        "The session was interrupted before the prompt above. The user has seen the following, which you may not "
        "remember. Nothing of it was re-run; the outcome of tools that were running is unknown.",
        _transcript(messages, limit),
    )


def note_about(record: SessionSnapshot, *, remembered: int = 0, limit: int = NOTE_LIMIT) -> str | None:
    """Build the note for an agent that remembers the first *remembered* messages; None if it needs no note."""
    if not remembered:
        return transcript_note(record, limit=limit) if record.messages else None
    since = [turn for turn in turns(record.messages[remembered:]) if not turn.refused]
    lost = [message for turn in since for message in turn.messages]
    return lost_note(lost, limit=limit) if lost else None


def fits(messages: Sequence[Message], *, limit: int = NOTE_LIMIT) -> bool:
    """Whether the text of all *messages* fits into a note."""
    return sum(len(_words(message)) for message in messages) <= limit


def _note(about: str, told: str) -> str:
    return f"{NOTE_BEGINS}\n{about}\n\n{told}\n{NOTE_ENDS}"


def _transcript(messages: Sequence[Message], limit: int) -> str:
    kept, room = _newest(settled_tools(messages), limit)
    details = _details(kept, room)
    told = ["\n".join([words, *details.get(index, ())]) for index, (_, words) in enumerate(kept)]
    left_out = len(messages) - len(kept)
    gap = f"({left_out} earlier messages are left out.)\n\n" if left_out else ""
    return gap + "\n\n".join(told)


def _newest(messages: Sequence[Message], limit: int) -> tuple[list[tuple[Message, str]], int]:
    """Return the newest messages whose text fits, and the room left; the newest is cut at its start if too long."""
    kept: list[tuple[Message, str]] = []
    room = limit
    for message in reversed(messages):
        words = _words(message)
        if kept and len(words) > room:
            break
        kept.append((message, words if len(words) <= room else f"[…] {words[len(words) - room :]}"))
        room -= min(len(words), room)
    return kept[::-1], room


def _details(kept: Sequence[tuple[Message, str]], room: int) -> dict[int, list[str]]:
    """Return inputs and outputs of tools by message index; the newest get the room first."""
    details: dict[int, list[str]] = {}
    for index in reversed(range(len(kept))):
        for block in reversed(kept[index][0].content):
            text = _of_a_tool(block)[:room] if isinstance(block, ToolCallBlock) else ""
            if text:
                details.setdefault(index, []).insert(0, text)
                room -= len(text)
    return details


def _words(message: Message) -> str:
    lines = [f"{message.role.capitalize()}: {message.text.strip()}", *_beside_text(message.content)]
    if message.role == "assistant" and was_cut_off(message):
        lines.append("[this answer was cut off here]")
    return _inert("\n".join(lines))


def _inert(text: str) -> str:
    return text.replace("restoration-note", "restoration note")


def _beside_text(content: Iterable[Block]) -> Iterator[str]:
    for block in content:
        if isinstance(block, ToolCallBlock):
            yield f"[tool call: {block.title or block.tool_call_id}; {_status(block)}]"
        elif isinstance(block, ResourceLinkBlock):
            yield f"[attached: {block.uri}]"
        elif not isinstance(block, TextBlock | ThoughtBlock) and block.type in ("image", "audio", "resource"):
            yield f"[attached: {block.type}]"


def _status(call: ToolCallBlock) -> str:
    return "outcome unknown" if call.is_open else (call.status or "outcome unknown")


def _of_a_tool(call: ToolCallBlock) -> str:
    """Return the input and the output of a tool call, each cut in its middle if too long."""
    given, gave = _shown(call.raw_input), _shown(call.raw_output) or _content(call)
    parts = [f"[{call.title or call.tool_call_id}: input: {_cut(given)}]"] if given else []
    parts += [f"[{call.title or call.tool_call_id}: output: {_cut(gave)}]"] if gave else []
    return _inert("\n".join(parts))


def _cut(text: str) -> str:
    if len(text) <= _OF_A_TOOL:
        return text
    return f"{text[: _OF_A_TOOL - _HEAD]} […] {text[-_HEAD:]}"


def _shown(value: Any) -> str:
    value = thaw(value)
    if value is None or value in ({}, [], ""):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _content(call: ToolCallBlock) -> str:
    items: list[Any] = call.content if isinstance(call.content, list) else []
    terminals = (call.model_extra or {}).get("terminals") or {}
    outputs = [str(seen["output"]) for seen in terminals.values() if isinstance(seen, dict) and seen.get("output")]
    return " ".join([*(_item(item) for item in items if isinstance(item, dict)), *outputs]).strip()


def _item(item: dict[str, Any]) -> str:
    if item.get("type") == "diff":
        return f"a change of {item.get('path')}"
    return text_in(item) or ""


def with_note(params: Raw, note: str) -> Raw:
    """Append *note* to a prompt. It goes last because agents derive titles from the start of a prompt."""
    prompt = params.get("prompt")
    return {**params, "prompt": [*(prompt if isinstance(prompt, list) else []), {"type": "text", "text": note}]}
